#pragma once

#include <filesystem>
#include <stdexcept>
#include <stdlib.h>
#include <string>

namespace insula::test {

/// A directory of its own that goes with everything in it when the test ends.
class temp_dir {
public:
  explicit temp_dir(const std::filesystem::path& below = std::filesystem::temp_directory_path()) {
    auto name = (below / "insula-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("no temporary directory " + name);
    path_ = name;
  }
  temp_dir(const temp_dir&) = delete;
  temp_dir& operator=(const temp_dir&) = delete;
  ~temp_dir() {
    std::error_code ignored; // What cannot be removed is no reason to fail a test.
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

private:
  std::filesystem::path path_;
};

} // namespace insula::test

#pragma once

#include "tests/support/temp_dir.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace insula::test {

/// For what is started meanwhile: the time of day, and no other clock.
class moved_clock {
public:
  explicit moved_clock(const std::string& by) {
    std::filesystem::permissions(where_.path(), std::filesystem::perms{0755});
    to(by);
    std::string library;
    for (const auto& each : std::filesystem::directory_iterator{"/usr/lib"})
      if (const auto at = each.path() / "faketime/libfaketime.so.1"; std::filesystem::exists(at))
        library = at.string();
    if (library.empty())
      throw std::runtime_error("there is no libfaketime here");
    ::setenv("LD_PRELOAD", library.c_str(), 1);
    ::setenv("FAKETIME_TIMESTAMP_FILE", file().c_str(), 1);
    ::setenv("FAKETIME_CACHE_DURATION", "1", 1);
    ::setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
    ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 0);
  }
  ~moved_clock() {
    for (const auto* each : {"LD_PRELOAD", "FAKETIME_TIMESTAMP_FILE", "FAKETIME_CACHE_DURATION",
                             "FAKETIME_DONT_FAKE_MONOTONIC"})
      ::unsetenv(each);
  }

  void to(const std::string& by) const { std::ofstream{file()} << by << '\n'; }

private:
  std::string file() const { return (where_ / "clock").string(); }

  temp_dir where_;
};

} // namespace insula::test

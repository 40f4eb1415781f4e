#pragma once

#include "base/unique_fd.hpp"

#include <string_view>

namespace insula::runtime {

/// A script as a file in memory, at its start, that nobody can write to. Its memory is ours and not
/// the sandbox's, so that it is emptied when this goes: whoever inside keeps it open has nothing.
class script_file {
public:
  script_file() = default;
  explicit script_file(std::string_view script); ///< Empty, with errno, if there can be none.
  explicit script_file(unique_fd file)           ///< One that was made before.
      : file_(std::move(file)) {}
  script_file(script_file&&) = default;
  script_file& operator=(script_file&& other) noexcept;
  ~script_file();

  int get() const { return file_.get(); }
  explicit operator bool() const { return static_cast<bool>(file_); }

private:
  void empty();
  unique_fd file_;
};

} // namespace insula::runtime

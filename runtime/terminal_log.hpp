#pragma once

#include "base/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace insula::runtime {

/// What a terminal has printed: one sequence of bytes, addressed by an absolute offset that only
/// grows, of which the newest `ceiling` are kept. They are in a file in memory: a disk that is busy
/// must not be felt in a keystroke.
///
/// Threads: one at a time.
class terminal_log {
public:
  explicit terminal_log(std::uint64_t ceiling)
      : ceiling_(ceiling) {}

  /// False with errno: nothing has been taken. At most the ceiling at once.
  bool append(std::string_view bytes);

  /// At most max_bytes from `offset` on, which lies between begin() and end().
  std::string read(std::uint64_t offset, std::size_t max_bytes) const;

  std::uint64_t begin() const { return end_ > ceiling_ ? end_ - ceiling_ : 0; }
  std::uint64_t end() const { return end_; }

private:
  const std::uint64_t ceiling_;
  unique_fd file_; ///< Offset o is at o modulo the ceiling.
  std::uint64_t end_ = 0;
};

} // namespace insula::runtime

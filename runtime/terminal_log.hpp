#pragma once

#include "base/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace insula::runtime {

/// What a terminal has printed: one sequence of bytes, addressed by an absolute offset that only
/// grows, of which the newest `ceiling` are kept. They are in a file in memory: a disk that is busy
/// must not be felt in a keystroke. Before the ring there is a page that says where the log ends,
/// which is written last: what a writer was about to add when it died is not there.
///
/// Threads: one at a time.
class terminal_log {
public:
  explicit terminal_log(std::uint64_t ceiling)
      : ceiling_(ceiling) {}

  /// What somebody else has written, who is gone.
  terminal_log(unique_fd file, std::uint64_t ceiling);

  /// For whoever keeps it beyond this process; -1 with errno: there is none.
  int file();

  /// False with errno: nothing has been taken. At most the ceiling at once.
  bool append(std::string_view bytes);

  /// At most max_bytes from `offset` on, which lies between begin() and end().
  std::string read(std::uint64_t offset, std::size_t max_bytes) const;

  std::uint64_t begin() const { return end_ > ceiling_ ? end_ - ceiling_ : 0; }
  std::uint64_t end() const { return end_; }

private:
  std::uint64_t ceiling_;
  unique_fd file_; ///< Offset o is at o modulo the ceiling, after the page.
  std::uint64_t end_ = 0;
};

} // namespace insula::runtime

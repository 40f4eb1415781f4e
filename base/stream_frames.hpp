#pragma once

#include <cstdint>

/// What travels through the socket between a file operation (a child of the agent inside the
/// sandbox) and the one who asked for it. Native byte order: both ends are on one machine. Nothing
/// here is trusted by the reader.
///
/// A read:  the child sends a file_head; if its error is 0, frames follow.
/// A write: the asker sends frames; the child answers with one file_head when the file is in place
/// or has failed. Frames:  frame_head{n} and n bytes, any number of times; frame_head{0} ends the
/// content. A stream that ends without
///          it was cut: a reader reports that, a writer throws away what it has.
namespace insula {

enum class file_kind : std::uint32_t { none = 0, regular = 1, directory = 2, other = 3, link = 4 };

struct file_head {
  std::int32_t error; ///< errno; 0 is success.
  file_kind kind;     ///< What the path names, as far as it is known.
  std::uint64_t size; ///< Bytes when the file was opened (read) or in the finished file (write).
  std::uint32_t mode; ///< Permission bits.
  std::uint32_t step; ///< Which step failed: a file_step.
};

enum class file_step : std::uint32_t {
  none = 0,
  setup,
  parents,
  open,
  type,
  read,
  write,
  rename,
  owner, ///< Nobody is known by that name; the same of the next.
  group,
  mode
};

struct frame_head {
  std::uint32_t bytes;
};

/// One frame carries at most this much.
inline constexpr std::uint32_t max_frame_bytes = 256 * 1024;

} // namespace insula

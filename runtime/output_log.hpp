#pragma once

#include "base/unique_fd.hpp"
#include "runtime/engine.hpp"
#include "runtime/log_account.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace insula::runtime {

/// A command's output: one ordered sequence of {stream, bytes}, addressed by an absolute offset
/// that only grows, kept in a file that takes at most `ceiling` bytes of the disk (and a page or
/// two), whose oldest part is given up for the newest. Bytes go from the pipe to the file without
/// passing through the process, and memory does not grow with them.
///
/// In the file there is a page that says where the log begins, then frames: four bytes of head
/// (stream, length) and their bytes. Offset o is at page + o: what is given up becomes a hole, so
/// that the file's length says where the log ends, whenever its writer dies. Offsets count the
/// heads too, and only those that next_offset has named are the start of a frame.
///
/// The account is charged for what the file takes. While that is full the log does not grow, beyond
/// a few frames that each log has.
///
/// Threads: one at a time.
/// Ceiling: the file system's for the length of a file (16 TiB on ext4); beyond it the disk
/// refuses.
class output_log {
public:
  static constexpr std::size_t max_frame_bytes = 64 * 1024;
  static constexpr std::uint64_t min_ceiling = 1u << 20;
  static constexpr std::uint64_t ceiling_when_full = 144 * 1024; ///< Two frames.

  struct piece {
    std::vector<output_frame> frames;
    std::uint64_t next_offset = 0;
    std::uint64_t lost_bytes = 0;
  };

  /// The file is made, without a name, in `directory` when somebody asks for it, or the first bytes
  /// come.
  output_log(std::string directory, std::uint64_t ceiling,
             std::shared_ptr<log_account> account = nullptr);

  /// What somebody else has written, who is gone: all that had left the pipes is there again after
  /// recover(), which comes first and reads the heads.
  output_log(unique_fd file, std::uint64_t ceiling, std::shared_ptr<log_account> account = nullptr);
  void recover();

  /// For whoever keeps it beyond this process; -1 with errno: there is none.
  int file() { return open_file() ? file_.get() : -1; }

  /// Moves what the pipe holds, at most one frame and at most `wanted` bytes. Returns the bytes
  /// moved, 0 at the pipe's end, -1 with errno (EAGAIN: it is empty; anything else: the disk
  /// refused, and the bytes stay in the pipe).
  ssize_t append_from(int pipe, output_stream stream, std::size_t wanted = max_frame_bytes);

  /// As much as fits into max_bytes, but at least one frame if there is one. Frames of one stream
  /// that follow each other come as one. An offset before begin() skips to it; one that lies beyond
  /// end() is the end; one that is inside of a frame is that frame's start.
  piece read(std::uint64_t offset, std::size_t max_bytes) const;

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }

  /// Whether another frame fits without giving up anything from `offset` on.
  bool has_room_before(std::uint64_t offset) const {
    return begin_with_room(head_bytes + max_frame_bytes) <= offset;
  }

private:
  static constexpr std::size_t head_bytes = 4;

  void settle();
  bool open_file();
  bool announce(output_stream stream);
  bool write_at(std::uint64_t offset, const char* bytes, std::size_t count);
  std::size_t read_at(std::uint64_t offset, char* bytes, std::size_t count) const;
  std::uint64_t
  begin_with_room(std::uint64_t bytes) const; ///< Only a marked frame can become the first.
  bool make_room(std::uint64_t bytes);
  void mark(std::uint64_t frame);
  std::uint64_t frame_at(std::uint64_t offset) const;

  std::string directory_;
  const std::uint64_t ceiling_;
  std::uint64_t room_; ///< The ceiling for the next frame, less than `ceiling_` on a full disk.
  log_charge charge_;
  unique_fd file_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::optional<output_stream>
    announced_; ///< Whose frame is at the end by its head, without length.
  std::deque<std::uint64_t>
    marks_; ///< Starts of some frames, a few hundred at most: where begin_ may go.
  mutable std::uint64_t told_ = 0; ///< The last offset that was told, which is a frame's start.
};

} // namespace insula::runtime

#pragma once

#include "base/process_input.hpp"
#include "base/unique_fd.hpp"
#include "runtime/held_label.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace insula::runtime {

/// The input of one command: bytes on their way into the pipe that is its stdin.
///
/// What is taken goes to the end of a file in memory, the segment, and from there into the pipe by
/// splice(), which moves the file's own position as it moves the bytes. The length says how much
/// has been taken and the position how much the pipe has had, both are the kernel's, and a copy of
/// the descriptor at the spawner has the same: a server that ends between any two instructions
/// leaves what the next one needs to know. A segment that is full, and of which the pipe has had
/// all, is replaced by an empty one. docs/decisions/0052
///
/// Threads: that of `io`, but for the constructor.
/// Owner:   one that has not been forgotten is held by an open pipe that it waits for as well.
/// Memory:  a segment, and as much again in the pipe; the pieces that wait, which their askers
///          count.
/// The process ignores SIGPIPE.
class input_pipe : public std::enable_shared_from_this<input_pipe> {
public:
  /// As much as a pipe has room for.
  static constexpr std::uint64_t segment_bytes = 64 * 1024;
  /// One that is written, one that is repeated since its connection broke, and as many again.
  static constexpr std::size_t max_waiting = 4;

  /// How it is kept beyond this process. Neither is called again after fall_silent() or forget().
  struct keeper {
    /// Without descriptors: those that are kept stay.
    std::function<void(const std::string& label, std::span<const int> fds)> put_down;
    std::function<void()> release;
    std::shared_ptr<void> share = {}; ///< What it counts for until it is closed.
  };

  /// An empty one. None, with errno: there is no memory or no descriptor.
  static unique_fd make_segment();

  /// `end`: the pipe's, non-blocking; none: it is closed. `segment`: empty, or as it was left.
  input_pipe(boost::asio::io_context& io, const held_head& head, unique_fd end, unique_fd segment,
             keeper with);

  /// Goes on with what an earlier server has taken.
  void resume() { advance(); }

  /// Pieces are taken in the order in which they come. `tell` is called once, maybe at once; not
  /// after fall_silent() or forget().
  void write(input_piece what, std::function<void(input_progress)> tell);

  /// The command has ended: no more is taken. What has been goes on to others that still read.
  void finish();

  /// It is the next server's.
  void fall_silent();
  /// Nobody asks for it any more.
  void forget();

  std::uint64_t taken() const { return head_.number + length_; }

private:
  struct waiting_piece {
    input_piece what;
    std::function<void(input_progress)> tell;
    std::chrono::steady_clock::time_point until;
  };

  void advance();
  void move();
  bool take();
  bool next_segment();
  bool has_reader();
  void answer(input_state state);
  void take_no_more();
  void shut();
  void watch();
  void set_patience();
  void expire();
  void put_down(std::span<const int> fds);

  boost::asio::posix::stream_descriptor end_;
  boost::asio::steady_timer patience_;
  held_head head_; ///< `number`: what had been taken before the segment.
  unique_fd segment_;
  std::uint64_t length_ = 0; ///< Of the segment,
  std::uint64_t moved_ = 0;  ///< and what of it the pipe has had.
  keeper with_;
  std::deque<waiting_piece> waiting_;
  bool watching_ = false;
};

} // namespace insula::runtime

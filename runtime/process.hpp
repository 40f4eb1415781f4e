#pragma once

#include "runtime/agent_job.hpp"
#include "runtime/engine.hpp"
#include "runtime/held_label.hpp"
#include "runtime/input_pipe.hpp"
#include "runtime/output_log.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace insula::runtime {

/// The native engine's process: two pipes, the log that they are emptied into, and those who read
/// it.
class native_process final : public process,
                             public agent_job,
                             public std::enable_shared_from_this<native_process> {
public:
  /// How a process reaches its agent; called from any thread.
  struct links {
    std::function<void(int signal)> signal;
    std::function<void()>
      forgotten; ///< Nobody holds the process any more, or its output is complete.
    std::shared_ptr<void> share = {};         ///< What its log counts for, for as long as it does.
    std::function<void(unique_fd)> late = {}; ///< Takes pipes that are left open.
    /// What is to be said on its stderr besides, once its pipes are empty. Asked once.
    std::function<std::string(const process_exit&)> last_words = {};
  };

  /// Of one that is kept: what a later server is to know of it, and how it is put down.
  struct keeping {
    held_head head;
    std::string label;
    std::function<void(const std::string& label, std::span<const int> fds)> put_down;
  };

  native_process(boost::asio::io_context& io, output_log log, process_listener listener, links to,
                 std::chrono::milliseconds reader_patience);
  ~native_process() override;

  /// Takes the read ends, non-blocking. Any thread, once, before anything is heard.
  void attach(unique_fd out, unique_fd err);

  /// The same with what its stdin is read from. Else it has none.
  void attach_input(std::shared_ptr<input_pipe> input) { input_ = std::move(input); }

  /// As of process_spec::awaits_reader. Before it is attached.
  void await_reader() { awaits_reader_ = attached_ = true; }

  /// Before it is attached: it is forgotten only when nobody holds it any more.
  void keep(keeping how);
  bool kept() const { return kept_.has_value(); }

  /// Its log's, for whoever keeps that; -1: there is none. As attach().
  int log_file() { return log_.file(); }

  /// Its log is another server's, and it was started by that one. On the thread of `io`, first.
  void resume();

  void read(std::uint64_t offset, std::size_t max_bytes, bool attached,
            std::function<void(log_chunk)> on_output) override;
  void detach() override;
  void signal(int number) override;
  void cut_output() override;
  void leave_output() override;
  void measure(std::function<void(log_extent)> tell) override;
  void open_log(std::function<void(unique_fd)> tell) override;
  void write_input(input_piece what, std::function<void(input_progress)> tell) override;
  void relabel(const std::string& label) override;

  void started() override;
  void failed(error why) override;
  void ended(process_exit how) override;
  void fall_silent() override;

  /// For a command that ends while others may go on holding its pipes: takes what is in them by
  /// now, at its reader's pace as ever, and hands on those that are not at their end.
  void settle(std::function<void(unique_fd)> hand_on);

  /// It has ended, and its log has all of its output. On the thread of `io`.
  bool complete() const;

private:
  struct pipe {
    output_stream stream;
    boost::asio::posix::stream_descriptor end;
    bool waiting = false; ///< For the pipe; otherwise it is closed, or the log has no room.
    std::optional<std::size_t> left = {}; ///< Set by settle(): what is still to be taken.
  };
  struct question {
    std::uint64_t offset;
    std::size_t max_bytes;
    bool attached;
    std::function<void(log_chunk)> on_output;
  };

  void on_io(void (native_process::*step)());
  void watch(pipe& from);
  void empty(pipe& from);
  void let_go(pipe& from);
  void advance();
  bool is_silent() const;
  void say_last_line();
  bool may_grow() const;
  void answer(question& asked);
  void watch_reader();
  void drop_reader();
  void drop_input();
  void put_down_end(const process_exit& how);
  void put_down_loss();
  void discard(std::uint64_t bytes, std::uint64_t offset);
  bool passes_loss(std::uint64_t from, std::uint64_t to) const;
  void give_up_oldest();
  void settle_keeping();

  boost::asio::io_context& io_;
  process_listener listener_;
  links to_;
  output_log log_;
  std::optional<keeping> kept_;
  std::shared_ptr<input_pipe> input_; ///< Null: there is none.
  std::array<pipe, 2> pipes_;
  std::string last_line_; ///< Said on stderr once the pipes are empty, as the last words are.
  std::function<void(unique_fd)> hand_on_; ///< Takes pipes that have been settled.
  std::deque<question> questions_;
  std::optional<process_exit> exit_;
  const std::chrono::milliseconds reader_patience_;
  boost::asio::steady_timer patience_;
  bool started_ = false;
  bool attached_ = false;
  bool awaits_reader_ = false; ///< It counts as attached, and has not come yet.
  bool reader_dropped_ = false;
  std::uint64_t reader_offset_ = 0;    ///< What the attached reader has taken.
  std::uint64_t discarded_ = 0;        ///< Bytes the disk refused,
  std::uint64_t discarded_before_ = 0; ///< and where the log ended when it last did.
  bool loss_told_ = false;             ///< Somebody has been.
};

} // namespace insula::runtime

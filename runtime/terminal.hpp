#pragma once

#include "runtime/agent_job.hpp"
#include "runtime/engine.hpp"
#include "runtime/reader_pace.hpp"
#include "runtime/terminal_log.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace insula::runtime {

/// The native engine's terminal: its master, the log of what it prints, and those who read and
/// type. Whoever reads fastest is waited for while it reads at a good rate (reader_pace.hpp);
/// nobody else holds it up.
class native_terminal final : public terminal,
                              public agent_job,
                              public std::enable_shared_from_this<native_terminal> {
public:
  /// How a terminal reaches the outside; called from any thread.
  struct links {
    std::function<void(int signal)> signal;
    std::function<void(std::span<const int>)> hold; ///< Keeps copies, until it is forgotten.
    std::function<void()> forgotten; ///< Nobody holds the terminal any more, or it has ended.
  };

  /// `channel`: non-blocking; the master comes through it before started() is heard.
  native_terminal(boost::asio::io_context& io, unique_fd channel, process_listener listener,
                  links to, reader_pace pace = reader_pace{});
  ~native_terminal() override;

  /// One that an earlier server has seen open: its master, and the log of what it has printed. On
  /// the thread of `io`, first.
  void resume(unique_fd master, unique_fd log);

  void read(std::uint64_t offset, std::size_t max_bytes, bool attached,
            std::function<void(log_chunk)> on_output) override;
  void read_for(std::uint64_t reader, std::uint64_t offset, std::size_t max_bytes,
                std::function<void(log_chunk)> on_output) override;
  void forget(std::uint64_t reader) override;
  void detach() override {} // It waits for nobody anyway.
  void signal(int number) override;
  void cut_output() override {} // Its end never waits for more.
  void write(std::string bytes, std::function<void(bool)> taken) override;
  void resize(terminal_size size) override;
  void measure(std::function<void(log_extent)> tell) override;
  std::int32_t leader() const override { return leader_; }

  void runs_as(std::int32_t leader) override { leader_ = leader; }
  void started() override;
  void failed(error why) override;
  void ended(process_exit how) override;
  void fall_silent() override;

private:
  struct question {
    std::uint64_t reader;
    std::uint64_t offset;
    std::size_t max_bytes;
    std::function<void(log_chunk)> on_output;
  };
  struct input {
    std::string bytes;
    std::size_t done;
    std::function<void(bool)> taken;
  };

  template <class Step>
  void on_io(Step step);
  bool take_master();
  bool use_master(unique_fd master);
  void watch_output();
  void watch_input();
  bool empty();
  void note_reader(std::uint64_t offset);
  void feed();
  void rest(std::chrono::steady_clock::time_point until);
  void finish();
  void answer_questions();

  boost::asio::io_context& io_;
  unique_fd channel_;
  process_listener listener_;
  links to_;
  boost::asio::posix::stream_descriptor master_;
  boost::asio::steady_timer pause_; ///< While nobody has the terminal open, or it is ahead.
  terminal_log log_;
  reader_pace pace_;
  std::vector<question> questions_;
  std::deque<input> inputs_;
  bool waiting_for_room_ = false;
  std::optional<process_exit> exit_;
  bool resumed_ = false; ///< It has its master from an earlier server.
  std::atomic<std::int32_t> leader_ = 0;
  bool started_ = false;
  bool over_ = false;
  std::uint64_t discarded_ = 0; ///< Bytes that could not be kept, not yet told to anybody.
};

} // namespace insula::runtime

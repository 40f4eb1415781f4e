#pragma once

#include "runtime/agent/shell_protocol.hpp"
#include "runtime/engine.hpp"
#include "runtime/held_label.hpp"
#include "runtime/late_output.hpp"
#include "runtime/packet_socket.hpp"
#include "runtime/process.hpp"
#include "runtime/script_file.hpp"
#include "runtime/shell_patience.hpp"
#include "runtime/spawner_client.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

namespace insula::runtime {

/// The native engine's shell: the server's end of a keeper's channel. What the keeper says is
/// untrusted, and whatever it does not say in time is decided without it.
class native_shell final : public shell, public std::enable_shared_from_this<native_shell> {
public:
  struct options {
    std::string log_directory;
    std::chrono::milliseconds reader_patience{};
    shell_patience patience;
  };

  /// How much of a command's output is kept. What counts it is held as long as the log is there.
  struct log_share {
    std::uint64_t bytes = 0;
    std::shared_ptr<log_account> account; ///< Is charged for it; none: nobody is.
    std::shared_ptr<void> counted = {};
  };

  /// How a shell reaches whoever can do what the keeper does not; called from any thread.
  struct links {
    std::function<void()> kill;      ///< Kills the keeper, and its shell with it.
    std::function<void()> forgotten; ///< It has ended.
    std::function<bool()> frozen;    ///< It stands still with its sandbox, and cannot answer.
    std::function<bool(int status, std::uint64_t kills_before)> memory_ran_out;
    std::function<std::uint64_t()> memory_kills;
    /// What a command is to say on stderr besides, once it has ended.
    std::function<std::string(const process_exit&, std::uint64_t kills_before)> last_words;
    /// Before a command: has the shell run where something is kept for it, if the rest is used up.
    std::function<void()> make_room;
    std::function<log_share()> share_log;
    /// Has descriptors kept beyond this process, under the name that it answers with; 0: that
    /// cannot be promised.
    std::function<std::uint64_t(const std::string& label, std::span<const int>)> hold;
    /// With other descriptors in place of what is kept, if there are any.
    std::function<void(std::uint64_t name, const std::string& label, std::span<const int>)> relabel;
    std::function<void(std::uint64_t name)> release;
    std::shared_ptr<late_output> late; ///< Takes the pipes that a command leaves open.
  };

  native_shell(boost::asio::io_context& io, options with, shell_listener listener, links to);
  ~native_shell() override;

  /// Takes our end of the channel. Once, before anything is heard. `name`: under which it is kept.
  void attach(unique_fd channel, std::uint64_t name);

  /// In place of attach(), for one that an earlier server has opened. Commands are numbered from
  /// `first_number` on, which that one has not reached. What the keeper says then is asked for
  /// here, or, if a command is to be resumed first, by that.
  void resume(unique_fd channel, std::uint64_t name, std::uint64_t first_number, bool has_command);

  /// A command that it ran, with what was kept for it.
  std::shared_ptr<process> resume_command(held_descriptors kept, process_listener listener);

  std::shared_ptr<process> run(shell_command what, process_listener listener) override;
  /// `internal`: nobody takes it over.
  std::shared_ptr<process> run_as(shell_command what, process_listener listener, bool internal);
  void look_around(std::function<void(result<shell_surroundings>)> tell) override;
  void end() override;

  /// The command that runs is a look of ours that nobody waits for any more: another one may be
  /// asked for, and has its turn as soon as the shell has come back. On the thread of `io`.
  void give_up_look();

  // On the thread of `io`: what becomes of the keeper.
  void failed(error why); ///< It could not be started.
  void doomed();          ///< Its sandbox is being ended. Any thread.
  /// It has ended. `lost`: with its sandbox, `why`: which the node has ended for this reason.
  void gone(bool lost, const std::string& why = {});
  void fall_silent();

private:
  struct command {
    std::uint64_t number = 0; ///< 0: none runs.
    std::shared_ptr<native_process> process;
    bool started = false; ///< The keeper has taken it.
    std::uint64_t memory_kills = 0;
    script_file script;
    held_head head;
    std::string label;      ///< The asker's.
    std::uint64_t name = 0; ///< Under which it is kept; 0: not yet.
    bool given_up = false;  ///< See give_up_look().
    bool resumed = false;   ///< An earlier server has started it.
  };

  /// A command that the keeper has not been told of.
  struct waiting_command {
    command what;
    std::string cwd;
    unique_fd out, err;
    int signal = 0; ///< That it has had meanwhile.
  };

  void open_channel(unique_fd channel);
  std::shared_ptr<native_process> make_process(output_log log, std::shared_ptr<void> counted,
                                               process_listener listener,
                                               const std::shared_ptr<std::uint64_t>& name,
                                               std::uint64_t number,
                                               std::optional<std::uint64_t> memory_kills);
  native_process::keeping keeping_of(const held_head& head, std::string label, std::uint64_t name);
  void ask_for_report();
  void await_start();
  void heard(const agent::shell_notice& said);
  void ready();
  void unknown_command(std::uint64_t number);
  void all_reported();
  void signal(std::uint64_t number, int signal);
  void watch_kill(std::uint64_t number);
  void pulse();
  void unheard();
  void over(process_exit how);
  bool tell_keeper(agent::shell_op what, std::uint64_t number);
  bool hand_over(waiting_command& next);
  void begin_next();
  bool runs(std::uint64_t number);
  command take(std::uint64_t number);
  void finish(command& done, process_exit how);

  boost::asio::io_context& io_;
  const options options_;
  shell_listener listener_;
  links to_;
  std::shared_ptr<packet_socket> channel_;
  boost::asio::steady_timer deadline_; ///< Of the start, then of the end.
  boost::asio::steady_timer kill_;     ///< Of a command that was killed.
  boost::asio::steady_timer pulse_;
  bool ready_ = false;
  bool answered_ = true;
  bool resuming_ = false;     ///< It has been asked what there is.
  std::uint64_t resumed_ = 0; ///< A command of an earlier server; 0: there is none.
  std::uint64_t unknown_ = 0; ///< A command that it runs and that nobody has taken over.
  std::uint64_t name_ = 0;    ///< Under which its channel is kept.

  std::mutex guard_; ///< For what follows.
  command now_;
  std::optional<waiting_command> next_; ///< Waits for a look that was given up.
  std::uint64_t last_number_ = 0;
  std::uint64_t report_ = 0; ///< The ping behind the report that this server has asked for.
  bool ending_ = false;      ///< end() was called.
  bool doomed_ = false;      ///< Whatever ends it now, it is the sandbox's end.
  bool over_ = false;
};

} // namespace insula::runtime

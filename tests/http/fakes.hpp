#pragma once

#include "actors/protocol/errors.hpp"
#include "actors/protocol/interfaces.hpp"
#include "base/io_pool.hpp"
#include "base/stream_frames.hpp"
#include "http/server.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

/// Directory, sandbox and process as the test wants them, behind the real messages.
namespace insula::test {

/// What the fakes were told, in order. A test waits for an entry instead of sleeping.
class diary {
public:
  void add(std::string entry);
  /// True once there is such an entry; false after a minute without.
  bool has(const std::string& entry);
  std::vector<std::string> all();

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> entries_;
};

/// What the sandbox does. Set before the request that meets it.
struct script {
  std::optional<error> find_error;
  std::optional<error> exec_error;
  std::optional<error> redefine_error;
  std::optional<std::set<std::string>> images; ///< What a sandbox may start from. None: anything.
  std::optional<error> file_error;
  std::optional<error> session_error;
  std::optional<error> result_error; ///< Of what is asked of requests that are done once.
  bool known_process = false;        ///< The last command is the one that is asked for.
  std::pair<std::uint64_t, std::uint64_t> extent; ///< Of its output.
  bool written = false;                           ///< A tree has been, by that request.
  std::string start = "1";                        ///< Of the sandbox,
  std::string next_start = "1";                   ///< and once it has said which it is.
  std::vector<sandbox_status> list;         ///< Those that are active, in the order of the list.
  std::vector<described_sandbox> described; ///< All that there are, in any order.
  std::vector<list_sandboxes> list_steps;   ///< What has been asked of them.
  std::vector<listed_sandbox> grouped;      ///< Those of every group, in every order.
  std::vector<list_group> group_steps;      ///< What has been asked of them.
  std::uint32_t most_on_page = 1'000;       ///< Answers have no more than that.
  pool_stats pool;
  network_state network;              ///< The policy that is set last is its own.
  std::optional<error> network_error; ///< Of whatever is asked of the sandbox's network.
  std::vector<listening_port> ports;
  std::vector<mounted_bucket> mounts;
  std::optional<error> mount_error;  ///< Of whatever is asked of the sandbox's mounts.
  sandbox_description description;   ///< What is defined last, and what changes it.
  std::optional<error> define_error; ///< When it is to be.
  std::vector<sandbox_run> runs;     ///< Its runs behind that of its description, the newest first.
  std::optional<error> runs_error;   ///< When they are asked for.
  /// Before each change of it: what another client does meanwhile.
  std::function<void(sandbox_description&)> meanwhile;
  std::optional<error> pause_error; ///< When it is to be paused, or resumed.
  terminal_status terminal;         ///< Of every id.
  bool opens_terminals = false;     ///< That are defined; with what has been printed before.
  std::optional<error> terminal_error;
  command_state command; ///< Of every id. Its process is the last one, if there is one.
  bool log_gone = false; ///< What it has said is not kept any more.
  command_list commands; ///< Of every run. `elsewhere` counts for one command as well.
  std::optional<error> commands_error;
  std::optional<error> interrupt_error; ///< When a command is to be interrupted.
  input_progress input;                 ///< What becomes of a piece of its input.
  bool reads_input = false;             ///< It ends when its input is closed.
  bool reads_slowly = false;            ///< It takes half of a piece, and is given the rest.
  std::optional<error> input_error;
  /// Makes the sockets that are asked for. None: sockets of this network.
  std::function<std::vector<unique_fd>(bool ipv6, std::uint32_t count)> sockets;
  disk_changes changes;                        ///< Of any two snapshots.
  std::vector<snapshot_description> snapshots; ///< Those that there are, in the order of lists.
  std::optional<error> snapshot_error;         ///< When one is to be taken, or gone back to.
  std::optional<error> pool_error;             ///< When it is to be emptied.
  bool stale_once = false;                     ///< The first handle that is found has just ended.
  bool hold_find = false;                      ///< find_atom is not answered until release().
  bool die_on_exec = false;                    ///< The sandbox ends without answering.
  bool probe = true;
  bool deaf_probe = false;                        ///< probe_request is never answered.
  std::vector<output_frame> output;               ///< What every command prints,
  std::optional<process_end> end = process_end{}; ///< and how it ends; none: it goes on running.
  bool deaf_process = false;                      ///< read_output is never answered.
  std::uint64_t lost_bytes = 0;                   ///< What the first answer says has been lost.
  std::optional<error> read_error;                ///< For every read_output after the first.
  /// The operation at the other end of a file channel, in a thread of its own.
  std::function<void(int fd)> file;
};

/// The fakes and the server in front of them.
class house {
public:
  explicit house(http::server_options options = {}, http::health_probe health = nullptr,
                 unsigned threads = 2);
  ~house();

  script& plays(); ///< Not while requests are under way.
  diary& heard() { return *diary_; }
  std::uint16_t port() const { return server_.port(); }
  http::server& server() { return server_; }
  exec_request last_exec();
  /// Asks the sandbox itself what it is, or changes that. Empty: it has refused.
  template <class Message>
  sandbox_description describe(const Message& question);
  void release();                                  ///< Answers the find_atom that is held.
  void print(output_stream to, std::string bytes); ///< The running command prints.
  void end_command(process_end how);
  void kill_command(); ///< The process' actor ends without a word.
  void print_terminal(std::string bytes);
  void end_terminal(process_end how);

  struct shared;

private:
  http::server_options with_pool(http::server_options options);

  std::shared_ptr<script> script_;
  std::shared_ptr<diary> diary_;
  std::shared_ptr<shared> shared_;
  io_pool pool_;
  caf::actor_system_config config_;
  caf::actor_system system_;
  directory_actor directory_;
  http::server server_;
};

template <class Message>
sandbox_description house::describe(const Message& question) {
  caf::scoped_actor self{system_};
  sandbox_description told;
  const auto failed = [](const caf::error&) {};
  self->request(directory_, caf::infinite, find_atom::value, std::string{"abc"}, request_context{})
    .receive(
      [&](const sandbox_actor& it) {
        self->request(it, caf::infinite, question)
          .receive([&](const sandbox_description& said) { told = said; }, failed);
      },
      failed);
  return told;
}

// ---- For the other end of a file channel ----

/// Everything until the last frame; false if the stream was cut before it.
bool read_frames(int fd, std::string& content);
void write_frame(int fd, std::string_view bytes); ///< None: the last frame.
void write_head(int fd, file_head head);

} // namespace insula::test

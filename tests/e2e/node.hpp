#pragma once

#include "tests/support/child_program.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/http_client.hpp"
#include "tests/support/temp_dir.hpp"

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

namespace insula::test {

using namespace std::chrono_literals;

/// The real program, `insula serve`, with a state directory of its own on a free port. When it goes
/// it ends the server if that still runs, and checks that nothing of it is left on this machine.
///
/// With INSULA_E2E_THROUGH in the environment, one that has no name is the second of a cluster's
/// two, and requests go by the first, which is drained and has no sandboxes. What is asked is this
/// one's all the same, and so is everything else here.
class node {
public:
  /// `yaml`: sections of cluster.yaml other than `runtime`. `prepare` is called with the state
  /// directory before the server starts. `name`: which one of a cluster it is.
  explicit node(const std::string& yaml = {},
                const std::function<void(const std::string&)>& prepare = {}, std::string name = {});
  ~node();
  node(const node&) = delete;
  node& operator=(const node&) = delete;

  /// The constructor has started it; this is for a server that has ended. Throws with the log if it
  /// does not get ready.
  void start();
  /// Ends the server, and says with what status. Throws when it does not end.
  int stop(int signal);
  /// kill -9, of the server alone or of both at the same time.
  void crash_server();
  void crash_spawner();
  void crash_both();

  /// Where requests go.
  std::uint16_t port() const { return around_ ? gateway_port() : port_; }
  pid_t pid() const { return server_->pid(); }
  pid_t spawner() const;
  bool stands_still() const; ///< As SIGSTOP has it.
  bool running() const { return server_ && server_->running(); }
  std::string state() const { return (where_ / "state").string(); }
  std::string scratch() const { return where_.path().string(); }
  std::string log() const;
  /// In place of what the constructor was given, for the next start().
  void configure(const std::string& yaml);
  /// The command that starts a server here.
  std::vector<std::string> command() const;

  /// What there is of this node on this machine, in words: processes, mounts, cgroups, loop
  /// devices, files.
  std::vector<std::string> traces() const;
  std::vector<pid_t> processes() const;
  /// Of those the ones that are there without a sandbox: server, the children that open its
  /// configuration and bring images, spawner and egress gateway.
  static constexpr std::size_t own_processes = 5;
  pid_t gateway() const;
  /// Snapshots of disks stay, with their image.
  bool keeps_snapshots = false;
  /// Every directory of one sandbox's cgroups.
  std::vector<std::string> sandbox_groups() const;

  // ---- Requests

  http_answer ask(std::string_view method, std::string_view target, std::string_view body = {},
                  std::string_view fields = {}) const {
    return http_ask(port(), method, target, body, fields);
  }
  exec_stream open(std::string_view id, const std::vector<std::string>& argv,
                   std::string_view more = {}) const {
    return exec_stream{port(), id, exec_body(argv, more)};
  }
  exec_outcome exec(std::string_view id, const std::vector<std::string>& argv,
                    std::string_view more = {}) const {
    return open(id, argv, more).rest();
  }
  /// A script in bash.
  exec_outcome sh(std::string_view id, const std::string& script,
                  std::string_view more = {}) const {
    return exec(id, {"bash", "-c", script}, more);
  }
  int remove(std::string_view id) const {
    return ask("DELETE", "/v1/sandbox/" + std::string{id}).status;
  }

private:
  struct way_around;
  std::uint16_t gateway_port() const;
  void go_around(const std::string& yaml);

  temp_dir where_;
  std::unique_ptr<way_around> around_; ///< Null: requests come here at once.
  const std::string name_;
  unsigned first_slot_;
  std::string key_;
  std::unique_ptr<child_program> server_;
  std::uint16_t port_ = 0;
};

/// What /proc says of a process now. With a sanitizer its memory is 0, since the sanitizer keeps
/// what the program has given back.
std::uint64_t resident_bytes(pid_t pid);
/// A line of its status, without its name. Empty: there is none.
std::string status_of(pid_t pid, const std::string& key);
std::size_t open_files(pid_t pid);
/// Each target once with its number, a line each: what to say when there are too many.
std::string open_file_names(pid_t pid);

/// Runs `what(i)` for 0 <= i < count in as many threads, which begin at the same moment, and gives
/// back what each returned. An exception of one comes out when all have ended.
template <class What>
auto at_once(std::size_t count, What what) {
  using outcome = decltype(what(std::size_t{}));
  std::vector<outcome> all(count);
  std::vector<std::exception_ptr> thrown(count);
  {
    std::vector<std::jthread> threads;
    std::atomic<bool> go = false;
    for (std::size_t i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        go.wait(false);
        try {
          all[i] = what(i);
        } catch (...) {
          thrown[i] = std::current_exception();
        }
      });
    go = true;
    go.notify_all();
  }
  for (const auto& each : thrown)
    if (each)
      std::rethrow_exception(each);
  return all;
}

} // namespace insula::test

#pragma once

#include "base/io_pool.hpp"
#include "runtime/engine.hpp"
#include "runtime/native_engine.hpp"
#include "tests/support/events.hpp"
#include "tests/support/eventually.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

/// A node of its own for a test: state directory, spawner, engine and sandboxes, all of them real.
/// Needs root.
namespace insula::test {

/// What came of a command, all of it.
struct outcome {
  std::optional<error> failed;
  runtime::process_exit how;
  std::string out, err;
  std::uint64_t lost = 0;

  bool exited(int code) const;
  bool killed_by(int signal) const;
};

/// One command on its way. Lets go of it when it goes out of scope; that does not end it.
class live_command {
public:
  live_command(runtime::sandbox& in, runtime::process_spec spec);
  /// In a shell in which nothing runs.
  live_command(runtime::shell& in, runtime::shell_command what);
  /// One that an earlier server has left.
  live_command(runtime::sandbox& in, const runtime::survivor& which);

  /// Until it runs. False: it could not be started.
  bool started();
  runtime::process_exit ended(std::chrono::milliseconds limit = std::chrono::seconds{30});
  /// Until its output has `text` in it; everything up to there.
  std::string says(const std::string& text);
  /// Reads to the end. `attached`: as the reader that holds the command up.
  outcome finish(bool attached = false);

  runtime::process& process() { return *process_; }

private:
  struct heard;
  runtime::process_listener listener();
  std::shared_ptr<heard> heard_;
  std::shared_ptr<runtime::process> process_;
  outcome so_far_;
  std::uint64_t offset_ = 0;
  bool read(bool attached);
};

/// `script` for bash, as the sandbox's user in /workspace.
runtime::process_spec in_shell(const std::string& script, runtime::sandbox_user user = {});

class live_node;

/// One sandbox, which is gone when this is.
class live_sandbox {
public:
  explicit live_sandbox(live_node& in, std::optional<runtime::sandbox_limits> limits = {});
  live_sandbox(live_node& in, runtime::sandbox_spec wanted);
  /// One that an earlier server has left; null if it could not be had.
  static std::optional<live_sandbox> adopted(live_node& in, const std::string& name);
  live_sandbox(live_sandbox&&) = default;
  live_sandbox& operator=(live_sandbox&&) = delete;
  ~live_sandbox();

  outcome run(const std::string& script, runtime::sandbox_user user = {});
  live_command start(const std::string& script, runtime::sandbox_user user = {});
  live_command start(runtime::process_spec spec);
  void destroy();
  void wait_until_ended();        ///< By itself.
  void let_go() { box_.reset(); } ///< It lives on, as a server's that is gone.

  runtime::sandbox& operator*() { return *box_; }
  const std::shared_ptr<runtime::sandbox>& handle() const { return box_; }
  const std::optional<error>& failed() const { return failed_; }

private:
  friend class live_node;
  struct heard;
  explicit live_sandbox(std::shared_ptr<heard> by)
      : heard_(std::move(by)) {}
  static runtime::sandbox_listener listener(const std::shared_ptr<heard>& to);
  std::shared_ptr<heard> heard_;
  std::shared_ptr<runtime::sandbox> box_;
  std::optional<error> failed_;
};

class live_node {
public:
  /// `most_uncharged`: as of runtime::spawner_options.
  explicit live_node(runtime::native_options options = {}, std::uint64_t most_uncharged = 0);
  ~live_node(); ///< Shuts down if that has not been done, and complains to stderr about what is
                ///< left.

  runtime::sandbox_spec spec() const; ///< With modest ceilings.
  runtime::native_engine& engine() { return *engine_; }
  const std::string& state() const { return state_; }
  const std::string& key() const { return key_; }
  runtime::cgroup_tree cgroups() const;

  /// The server dies: its ends are closed, and the spawner lives on. Nothing that it gave may be
  /// held any more.
  void drop_server() { engine_.reset(); }
  /// A server starts, after another or while the other's spawner lives. What the other gave may
  /// still be held. `disk`: as of runtime::spawner_options.
  void serve(const std::string& disk = "auto");
  void shut_down();

  pid_t spawner() const;
  pid_t gateway() const;
  std::vector<pid_t> agents() const;
  /// What there is on this machine of this node: processes, mounts, cgroups of sandboxes, loop
  /// devices, log files.
  std::vector<std::string> traces() const;
  /// Traces that stay after the spawner has ended.
  std::vector<std::string> leftovers() const;

private:
  runtime::native_options options_;
  std::uint64_t most_uncharged_;
  std::string state_, key_;
  runtime::image_layers image_;
  io_pool pool_{1};
  std::vector<std::unique_ptr<runtime::native_engine>> earlier_;
  std::unique_ptr<runtime::native_engine> engine_;
};

/// The one node of this test program, for tests that need nothing special. The program fails when
/// it leaves anything.
live_node& shared_node();

/// Of the host, by its command line; 0 if there is none.
pid_t find_process(const std::string& words);
pid_t parent_of(pid_t process);
bool lives(pid_t process); ///< And is no zombie.

} // namespace insula::test

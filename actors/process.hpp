#pragma once

#include "actors/figures.hpp"
#include "actors/protocol/interfaces.hpp"
#include "actors/survivor_note.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "runtime/engine.hpp"

#include <caf/fwd.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace insula {

using start_atom = caf::atom_constant<caf::atom("start")>;
using measure_atom = caf::atom_constant<caf::atom("measure")>;
using open_log_atom = caf::atom_constant<caf::atom("openlog")>;
using probe_atom = caf::atom_constant<caf::atom("probe")>;

using interrupt_atom = caf::atom_constant<caf::atom("interrupt")>;

/// What has become of a process.
struct process_status {
  bool ended = false; ///< All of it: its output is complete.
  process_end end;
};

/// The file of a process' log. Null: there is none.
struct log_file {
  std::shared_ptr<unique_fd> file;
};

/// A process as its sandbox sees it, which asks it exactly one of these, first.
using started_process_actor = process_actor::extend<
  // Starts the command; answers with the process's public handle once it runs. Errors:
  // launch_failed, limit_reached.
  caf::replies_to<start_atom>::with<process_actor>,
  // Starts it, and answers when it has ended: whether it ran and ended with 0.
  caf::replies_to<probe_atom>::with<bool>,
  // What is said to readers if it ends with the place it runs in: why that ends.
  caf::reacts_to<error>, caf::replies_to<status_atom>::with<process_status>,
  // Ends it by SIGTERM, or at last by SIGKILL; answers when that is so. Errors: invalid_request (it
  // does not run).
  caf::replies_to<interrupt_atom>::with<caf::ok_atom>,
  // To its process group, if it runs.
  caf::reacts_to<signal_terminal>,
  // What of its output can be read.
  caf::replies_to<measure_atom>::with<std::uint64_t, std::uint64_t>,
  // As runtime::process::open_log.
  caf::replies_to<open_log_atom>::with<log_file>>;

namespace actors {

struct process_options {
  std::shared_ptr<runtime::sandbox> place;
  runtime::process_spec spec;
  /// Instead of starting `spec` in `place`, if set.
  std::function<std::shared_ptr<runtime::process>(runtime::process_listener)> launch;
  std::optional<std::int64_t> timeout_ms;
  command_rules rules;
  /// Of one that an earlier server has started: when its time is up, instead of timeout_ms from its
  /// start.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  /// Of one that is kept: what is put down of it.
  std::optional<survivor_note> note;
  std::uint64_t memory_bytes = 0; ///< The sandbox's limit, for whoever is told that it was met.
  /// The command has ended and its output is complete, or it never ran: the sandbox need not keep
  /// the handle. Once.
  std::function<void()> on_over;
  std::shared_ptr<actors::figures> figures = std::make_shared<actors::figures>();
  std::string request; ///< Which one has asked for it, for the log.
  /// The sandbox's first command: when the sandbox's start began.
  std::optional<std::chrono::steady_clock::time_point> start_began;
};

/// One command: started when asked, read by whoever asks, ended when its time is up. It outlives
/// its command for as long as somebody holds it.
started_process_actor spawn_process(caf::actor_system& system, process_options options);

} // namespace actors
} // namespace insula

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::error)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::log_file)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::process_status)

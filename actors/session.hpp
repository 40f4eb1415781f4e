#pragma once

#include "actors/figures.hpp"
#include "actors/process.hpp"
#include "actors/protocol/messages.hpp"
#include "runtime/engine.hpp"

#include <caf/typed_actor.hpp>

#include <functional>
#include <memory>
#include <string>

namespace insula {

using look_around_atom = caf::atom_constant<caf::atom("lookaround")>;
using open_atom = caf::atom_constant<caf::atom("open")>;

/// A command for a session. It waits for its turn there.
struct session_command {
  /// How its process is made; what it runs in is the session's business.
  std::shared_ptr<actors::process_options> process;
  runtime::shell_command what;
  std::shared_ptr<void> memory; ///< What it counts for while it waits; given back with it.
  std::string key = {};         ///< Under which its result is kept; empty: it is not.
};

/// The session is not wanted any more, for the reason that its commands are told.
struct end_session {
  error why;
};

/// One named shell of a sandbox, as the sandbox sees it.
using session_actor = caf::typed_actor<
  // Opens the shell if there is none, and answers when there is. Errors: launch_failed,
  // sandbox_not_running.
  caf::replies_to<open_atom>::with<caf::ok_atom>,
  // The answer comes once the command runs: after all that have been asked for before it, and in a
  // new shell if the last one ended. Errors: those, limit_reached, and what the session ended for.
  caf::replies_to<session_command>::with<process_actor>,
  // Of its shell if that is free now, else of what the session was made with.
  caf::replies_to<look_around_atom>::with<runtime::shell_surroundings>,
  // Answers when the shell has ended with all that it has started. The actor ends when the last
  // command's output has been taken.
  caf::replies_to<end_session>::with<caf::ok_atom>>;

namespace actors {

struct session_options {
  std::shared_ptr<runtime::sandbox> place;
  runtime::shell_spec first;    ///< What the session was made with,
  runtime::shell_spec defaults; ///< and what a shell gets that follows one that has ended.
  std::optional<std::int64_t> command_timeout_ms; ///< For commands that bring none; of `first`.
  std::string id;                                 ///< For the next server, as all of the label.
  /// Its shell, and the command that runs there, if an earlier server has left them.
  std::optional<runtime::survivor> shell;
  std::optional<runtime::survivor> command;
  std::shared_ptr<process_options> process; ///< Of that command.
  /// Told what has become of that command, if set: it runs, or why it does not.
  std::function<void(result<process_actor>)> on_resumed;
  bool first_shell = true; ///< No shell has ended yet.
  std::shared_ptr<actors::figures> figures = std::make_shared<actors::figures>();
};

session_actor spawn_session(caf::actor_system& system, session_options options);

} // namespace actors
} // namespace insula

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::end_session)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::session_command)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::runtime::shell_surroundings)

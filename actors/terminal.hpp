#pragma once

#include "actors/figures.hpp"
#include "actors/process.hpp"
#include "actors/protocol/interfaces.hpp"
#include "runtime/engine.hpp"

#include <caf/fwd.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula {

using join_atom = caf::atom_constant<caf::atom("join")>;
using is_quiet_atom = caf::atom_constant<caf::atom("isquiet")>;

/// A terminal as its sandbox sees it.
using joined_terminal_actor = terminal_actor::extend<
  // Whoever asks is a client from now on, for as long as it lives. Answers with the terminal's
  // public handle once it runs, and what open_terminal_request promises. Errors: launch_failed,
  // limit_reached, sandbox_not_running (it has ended).
  caf::replies_to<join_atom>::with<terminal_actor, std::uint64_t, std::uint64_t>,
  // The same for who is to be its only client. With true, those before are told so, and are clients
  // no longer; else also already_exists.
  caf::replies_to<join_atom, bool>::with<terminal_actor, std::uint64_t, std::uint64_t>,
  // What of its output can be read. Errors: sandbox_not_running (it has ended).
  caf::replies_to<measure_atom>::with<std::uint64_t, std::uint64_t>,
  // Whether it runs, has no client, and is one of these, by the numbers of their processes.
  caf::replies_to<is_quiet_atom, std::vector<std::int32_t>>::with<bool>,
  // Ends it, as when somebody hangs up.
  caf::reacts_to<delete_atom>>;

namespace actors {

/// TERM, where nobody has said another.
inline constexpr std::string_view terminal_type = "xterm-256color";

struct terminal_options {
  std::shared_ptr<runtime::sandbox> place;
  runtime::process_spec spec;
  terminal_size size;
  std::optional<runtime::survivor> survivor; ///< Taken over instead, if set.
  /// It has ended, or it never ran: the sandbox need not keep the handle. Once.
  std::function<void()> on_over;
  /// Whether it has clients.
  std::function<void(bool)> on_use;
  std::shared_ptr<actors::figures> figures = std::make_shared<actors::figures>();
  std::string request;   ///< Which one has asked for it, for the log.
  bool blank = true;     ///< The screen is when bash's first prompt comes.
  bool has_term = false; ///< TERM is in the variables of `spec`.
};

/// One terminal, started at once. It lives on when its clients have gone, until its process ends.
joined_terminal_actor spawn_terminal(caf::actor_system& system, terminal_options options);

} // namespace actors
} // namespace insula

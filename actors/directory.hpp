#pragma once

#include "actors/protocol/interfaces.hpp"
#include "actors/sandbox/sandbox.hpp"

#include <caf/fwd.hpp>

namespace insula {

/// What one node asks another about an object: see snapshots/questions.hpp.
struct peer_question {
  std::string text;
};

/// The directory as its node sees it.
using node_directory_actor = directory_actor::extend<
  // The activation of an object of another kind, made on first use. Errors: invalid_request (no
  // such kind, or a malformed id), node_unreachable (it leaves this node).
  caf::replies_to<reach_atom, object_name>::with<owned_object_actor>,
  // Passes it on to the activation, which is made if need be, without starting its sandbox. Errors:
  // sandbox_not_running (it is being deleted), and those of sandbox_object_actor.
  caf::replies_to<alarm_due>::with<caf::ok_atom>,
  // An earlier server has left something running by this name: if that is an id, its object takes
  // it over, else it is ended.
  caf::reacts_to<adopt_atom, std::string>,
  // As of sandbox_object_actor: of all, and of one.
  caf::replies_to<evict_atom>::with<caf::ok_atom>,
  caf::replies_to<evict_atom, std::string>::with<caf::ok_atom>,
  caf::replies_to<hand_over_atom, std::string>::with<caf::ok_atom>,
  // keep_files_atom to every activation, and again to those that were used meanwhile, a few times.
  // Answers when all of them have: of how many it failed.
  caf::replies_to<keep_files_atom>::with<std::uint64_t>,
  // Another node asks this of an object that it takes for this one's: see object_routes. Errors:
  // stale_epoch (it is not), invalid_request (the question makes no sense), and those of the
  // object.
  caf::replies_to<peer_question>::with<std::string>>;

namespace actors {

/// The directory of one node: it makes an object's actor on first use and knows it from then on.
/// `kinds`: all but sandboxes.
node_directory_actor spawn_directory(caf::actor_system& system,
                                     std::shared_ptr<const sandbox_options> options,
                                     object_kinds kinds = {});

} // namespace actors
} // namespace insula

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::object_name)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::peer_question)

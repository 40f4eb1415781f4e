#pragma once

#include "actors/protocol/snapshots.hpp"
#include "actors/sandbox/sandbox.hpp"

#include <caf/fwd.hpp>
#include <caf/typed_actor.hpp>

#include <memory>

namespace insula::actors::snapshots {

using comparison_actor =
  caf::typed_actor<caf::replies_to<compare_snapshots>::with<snapshot_changes>>;

/// Compares two snapshots over the same image, at whichever node it is asked: what is on another
/// one alone is brought here first. It is for one question, and ends with the answer,
/// or with the directory. Errors: those
/// of the directory for compare_snapshots.
comparison_actor spawn_comparison(caf::actor_system& system,
                                  std::shared_ptr<const sandbox_options> options);

} // namespace insula::actors::snapshots

#pragma once

#include "actors/owned_object.hpp"
#include "actors/protocol/snapshots.hpp"
#include "actors/sandbox/sandbox.hpp"

#include <caf/fwd.hpp>

namespace insula {

/// The object of one snapshot. Errors of all: those of storage::store, and of the lease.
using snapshot_actor = caf::typed_actor<
  // Durable when answered. Errors: already_exists.
  caf::replies_to<define_snapshot>::with<snapshot_description>,
  // Errors: not_found.
  caf::replies_to<find_snapshot>::with<snapshot_description>,
  // Durable when answered. Errors: not_found (it was deleted, too), limit_reached.
  caf::replies_to<hold_snapshot>::with<snapshot_description>,
  // Of one that is not held nothing happens.
  caf::replies_to<release_snapshot>::with<caf::ok_atom>,
  // Durable when answered; its node has no bytes then, unless a sandbox stands on it. Errors:
  // not_found (it was deleted before, too).
  caf::replies_to<delete_snapshot>::with<snapshot_description>>;

using lost_atom = caf::atom_constant<caf::atom("lost")>;
using found_atom = caf::atom_constant<caf::atom("found")>;

using snapshot_object_actor = snapshot_actor::extend_with<owned_object_actor>::extend<
  // The engine does not have its bytes, or has them again.
  caf::reacts_to<lost_atom>, caf::reacts_to<found_atom>>;

namespace actors {

/// It ends in silence when nothing is asked of it; the next activation finds everything in the
/// store.
snapshot_object_actor spawn_snapshot(caf::actor_system& system, std::string id,
                                     std::shared_ptr<const sandbox_options> options);

/// Their kind, for a node's directory.
object_kinds snapshot_kind(std::shared_ptr<const sandbox_options> options);

} // namespace actors
} // namespace insula

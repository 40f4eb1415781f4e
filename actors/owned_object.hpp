#pragma once

#include "actors/alarm.hpp"

#include <caf/fwd.hpp>
#include <caf/typed_actor.hpp>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace insula {

using adopt_atom = caf::atom_constant<caf::atom("adopt")>;
using evict_atom = caf::atom_constant<caf::atom("evict")>;
using hand_over_atom = caf::atom_constant<caf::atom("hand_over")>;
using keep_files_atom = caf::atom_constant<caf::atom("keepfiles")>;
using keep_used_files_atom = caf::atom_constant<caf::atom("keepused")>;

/// The name of an object that one node owns, as stores and leases know its owner: a sandbox is
/// `ID`, an object of another kind is `KIND:ID`.
struct object_name {
  std::string kind; ///< Lower-case letters, digits and hyphens. Empty: a sandbox.
  std::string id;   ///< Letters, digits, `-`, `_` and `.`; of a sandbox as sandbox_id has it.

  static std::optional<object_name> parse(std::string_view owner);
  std::string owner() const { return kind.empty() ? id : kind + ':' + id; }

  bool operator==(const object_name&) const = default;
};

/// An object of any kind as its node sees it. One that holds nothing back in memory may end by
/// itself; the next activation finds everything in the store.
using owned_object_actor = caf::typed_actor<
  // Starts nothing. Errors: those of storage::store, and of the lease.
  caf::replies_to<alarm_due>::with<caf::ok_atom>,
  // An earlier server may have left it running: then it is taken over.
  caf::reacts_to<adopt_atom>,
  // It is not this node's any more: whatever of it is here ends, and what the node kept of it is
  // forgotten. Its record stays. Answered when nothing runs; the actor ends then.
  caf::replies_to<evict_atom>::with<caf::ok_atom>,
  // It is to go on elsewhere: it is stopped, as if nobody had used it for long. Answered when
  // nothing runs and its lease is given back. Errors: limit_reached (it is being started, changed
  // or deleted: later).
  caf::replies_to<hand_over_atom>::with<caf::ok_atom>,
  // Before it is handed over or ended: if it is persistent and runs, answers when a snapshot of its
  // files as they are now, or later, is durable. Of any other at once. Errors: store_failed,
  // io_failed, sandbox_not_running.
  caf::replies_to<keep_files_atom>::with<caf::ok_atom>,
  // The same if it was used since the last one began. Else at once.
  caf::replies_to<keep_used_files_atom>::with<caf::ok_atom>>;

namespace actors {

/// How an object is activated, by its kind; none for sandboxes. Called on a CAF worker.
using object_kinds =
  std::map<std::string,
           std::function<owned_object_actor(caf::actor_system&, const std::string& id)>,
           std::less<>>;

} // namespace actors
} // namespace insula

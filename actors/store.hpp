#pragma once

#include "actors/figures.hpp"
#include "actors/protocol/messages.hpp"
#include "storage/store.hpp"

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/fwd.hpp>
#include <caf/typed_actor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace insula {

using read_owner_atom = caf::atom_constant<caf::atom("read_owner")>;
using find_keys_atom = caf::atom_constant<caf::atom("find_keys")>;
using count_marks_atom = caf::atom_constant<caf::atom("countmarks")>;

/// A page of a list: what storage::store::scan() is asked.
struct scan_marks {
  std::string mark;
  storage::mark_position after;
  std::size_t limit = 1;
  bool keys_only = false; ///< Then scan_keys().
};

/// Entries by their places: what storage::store::read_each() is asked.
struct read_entries {
  std::vector<storage::mark_position> places;
};

/// storage::store behind a mailbox. It runs on a thread of its own, because reading waits for the
/// disk.
using store_actor = caf::typed_actor<
  // Durable when answered. Errors: those of storage::store.
  caf::replies_to<storage::write_batch, request_context>::with<caf::ok_atom>,
  // Everything an owner has whose keys begin with a prefix.
  caf::replies_to<read_owner_atom, std::string, std::string /* prefix */,
                  request_context>::with<std::vector<storage::entry>>,
  // The same of all owners.
  caf::replies_to<find_keys_atom,
                  std::string /* prefix */>::with<std::vector<storage::owned_entry>>,
  caf::replies_to<scan_marks>::with<storage::mark_page>,
  caf::replies_to<read_entries>::with<storage::mark_page>,
  caf::replies_to<count_marks_atom, std::string /* mark */>::with<std::uint64_t>>;

namespace actors {

/// `disk` is not owned and must outlive the actor system.
store_actor spawn_store(caf::actor_system& system, storage::store* disk,
                        std::shared_ptr<mailbox_depths> depths);

} // namespace actors
} // namespace insula

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::storage::write_batch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::storage::entry)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::storage::mark_page)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::scan_marks)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::read_entries)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::vector<insula::storage::entry>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::vector<insula::storage::owned_entry>)

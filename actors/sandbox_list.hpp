#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/sandbox_metadata.hpp"
#include "storage/lease.hpp"
#include "storage/store.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

/// The list of all sandboxes: one marked entry (storage/store.hpp) in the record of each, with all
/// that a list tells of it. The newest sandbox is first; of two of the same moment, the one with
/// the lower id. A record and its line are one batch, so they never differ.
namespace insula::actors {

/// What the keys of the lines begin with.
inline constexpr std::string_view sandbox_list = "@list/sandbox/";

/// What is told of the sandbox with this record.
sandbox_description describe_record(const record_entries& record);

/// The line that this record has in the list. None: there is no such sandbox yet.
std::optional<storage::entry> line_of(const record_entries& record);

/// What a line tells.
described_sandbox read_line(const storage::owned_entry& line);

/// A place in the list as a client may know it, and back. Errors: invalid_request.
std::string cursor_of(const storage::owned_entry& line);
result<storage::mark_position> position_of(std::string_view cursor);

/// Gives each record of an earlier version its line, under the lease of its owner. It waits for the
/// store: for starts. A record whose lease is held by somebody else is left to that one. `let_go`
/// is called with each owner whose lease was taken for it, once that is given back. Cut off
/// anywhere, the next start goes on with it. Returns how many have got one.
std::size_t list_older_records(storage::store& records, storage::lease_service& leases,
                               const std::function<void(const std::string& owner)>& let_go);

} // namespace insula::actors

#pragma once

#include "actors/owned_object.hpp"
#include "actors/protocol/snapshots.hpp"
#include "actors/record_keys.hpp"
#include "actors/snapshots/census.hpp"
#include "base/error.hpp"
#include "storage/store.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The record of a snapshot, and its lines in lists (storage/store.hpp: marks). A record and its
/// lines are one batch.
namespace insula::actors::snapshots {

/// The kind of these objects: see object_name.
inline constexpr std::string_view kind = "snapshot";

/// The name of a snapshot's object, as stores and leases know it.
inline std::string owner_of_snapshot(std::string_view id) {
  return object_name{std::string{kind}, std::string{id}}.owner();
}

/// What a node of a cluster without such a place says of all of them.
inline const error no_common_place{errc::forbidden,
                                   "snapshots of disks need a place that all nodes of the cluster "
                                   "reach: snapshots.endpoint or snapshots.directory"};

/// With it there is such a snapshot. No sandbox's record has it.
inline constexpr const char* taken_key = "taken_ms";
inline constexpr const char* state_key = "state";
inline constexpr const char* used_key = "used_ms";
/// Behind it, the sandboxes that stand on it, each with the time since when.
inline constexpr std::string_view held_prefix = "held/";
/// Nobody sees it before the copy of snapshot_key is there.
inline constexpr const char* pending_key = "pending";
/// It is deleted so long after its last use.
inline constexpr const char* keep_key = "keep_ms";
/// Why there will be no copy.
inline constexpr const char* no_copy_key = "no_copy";
/// What it had is not on the disk any more.
inline constexpr const char* freed_key = "freed";

/// What the keys of all lines begin with.
inline constexpr std::string_view lines = "@snapshots/";

std::vector<storage::change> changes_of(const snapshot_description& is);
/// Its bytes have gone: it needs its image no more.
std::vector<storage::change> changes_when_freed(const record_entries& record);
/// None: the record is not that of a snapshot.
std::optional<snapshot_description> describe(std::string id, const record_entries& record);

/// None: there is nothing of it to be counted.
std::optional<counted_as> counted(const snapshot_description& is, const record_entries& record);

std::vector<storage::entry> lines_of(std::string_view id, const record_entries& record);
/// Snapshots that have `parent` as theirs, whatever has become of them.
std::string list_under(std::string_view parent);
std::string list_of_origin(std::string_view origin);

struct listed {
  std::string mark;
  storage::mark_position after;
};
/// Errors: invalid_request (the place makes no sense).
result<listed> range_of(const list_snapshots& wanted);
snapshot_page page_of(const list_snapshots& wanted, const storage::mark_page& found);

/// None: a caller may give these to a snapshot.
std::optional<error> malformed(const take_snapshot& wanted);

} // namespace insula::actors::snapshots

#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/sandbox_groups.hpp"
#include "actors/sandbox_metadata.hpp"
#include "storage/lease.hpp"
#include "storage/store.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

/// The list of all sandboxes: one marked entry (storage/store.hpp) in the record of each, with all
/// that a list tells of it. The newest sandbox is first; of two of the same moment, the one with
/// the lower id. A record and its line are one batch, so they never differ.
namespace insula::actors {

/// What the keys of the lines begin with.
inline constexpr std::string_view sandbox_list = "@list/sandboxes/";
/// The same in records of an earlier version, whose lines have come to no list of a group.
inline constexpr std::string_view older_sandbox_list = "@list/sandbox/";

/// Times as a list has them in its keys, with as many digits each.
inline constexpr std::size_t time_digits = 16;
std::string newest_first(std::int64_t ms);
std::string oldest_first(std::int64_t ms);

/// What is told of the sandbox with this record.
sandbox_description describe_record(const record_entries& record);

/// The line that this record has in the list. None: there is no such sandbox yet.
std::optional<storage::entry> line_of(const record_entries& record);

/// All that follows from this record for lists, of all sandboxes and of its group: its line and
/// marks, below prefixes of which nothing else is in a record.
std::vector<storage::entry> lines_of(const record_entries& record, const group_rule& groups);
std::vector<std::string> prefixes_of_lines();

/// What a line tells.
described_sandbox read_line(const storage::owned_entry& line);

/// Where the line is of the sandbox that this mark of a group's list stands for.
storage::mark_position line_behind(const storage::owned_entry& mark);

/// A place in the list as a client may know it, and back. Errors: invalid_request.
std::string cursor_of(const storage::owned_entry& line);
result<storage::mark_position> position_of(std::string_view cursor);

// ---- Records of an earlier version

/// What the store finds by created_key: all records, or those of an earlier version alone, as a
/// cluster's does.
enum class found_records : std::uint8_t { all, older };

struct listed_records {
  std::size_t written = 0;       ///< So many have got their line.
  std::size_t left = 0;          ///< So many have none, and are not another node's to bring up.
  std::optional<error> why = {}; ///< Of the first that is left; if none is, nobody knows how many.
};

using owner_function = std::function<void(const std::string& owner)>;

/// Gives each record of an earlier version its line and the marks of its group, under the lease of
/// its owner. It waits for the
/// store: for starts. Where there is none of them it reads no line. A record that another node owns
/// is left to that one. `let_go` is called with each owner whose lease was taken for it, once that
/// is given back. Cut off anywhere, or where the store fails, the next start goes on with it.
listed_records list_older_records(storage::store& records, storage::lease_service& leases,
                                  found_records found, const group_rule& groups,
                                  const owner_function& let_go);

/// The log has how many got their line, and as a warning how many did not, and why.
void tell(const listed_records& of);

} // namespace insula::actors

#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/record_keys.hpp"
#include "base/error.hpp"
#include "storage/store.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The lists of each group of sandboxes: in the record of a sandbox, one mark (storage/store.hpp)
/// for each order and direction. A mark has no value: what is told of the sandbox is its line in
/// the list of all (actors/sandbox_list.hpp), whose place a mark's key ends with. So a change of
/// the sandbox that moves it in no list writes no mark.
namespace insula::actors {

/// What the keys of these marks begin with.
inline constexpr std::string_view group_lists = "@group/";

/// Which group a sandbox is in, by what APIs say of it. None: in no group. The answer for one
/// sandbox stays the same for as long as there is that sandbox. Any thread, quick.
using group_rule = std::function<std::optional<grouped_sandbox>(const api_metadata&)>;

/// It may be the name of one.
bool is_group(std::string_view text);
/// A group's name as a part of keys. Of two neither is the beginning of the other: a slash ends it,
/// and there is none in it.
std::string group_in_key(std::string_view group);

/// The marks of this record, whose line's key in the list of all ends with `turn`. A member that is
/// malformed has none.
std::vector<storage::entry> group_marks(const record_entries& record, const grouped_sandbox& member,
                                        std::string_view turn);

/// A part of a list, as the store knows it.
struct marked_range {
  std::string mark;
  storage::mark_position after;
};
/// Errors: invalid_request (the group, the beginning of names or the place makes no sense).
result<marked_range> range_of(const list_group& wanted);

/// What the key of the line ends with that this mark stands for.
std::string_view turn_of_mark(const storage::owned_entry& mark);

/// `after` of the page that begins behind this mark.
std::string place_of(const list_group& list, const storage::owned_entry& mark);

} // namespace insula::actors

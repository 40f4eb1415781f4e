#include "actors/snapshots/snapshot_record.hpp"

#include "actors/owned_object.hpp"
#include "actors/record_text.hpp"
#include "actors/sandbox_groups.hpp"
#include "actors/sandbox_list.hpp"
#include "base/limits.hpp"

#include <algorithm>

namespace insula::actors::snapshots {

namespace {

constexpr const char* origin_key = "origin";
constexpr const char* parent_key = "parent";
constexpr const char* root_key = "root";
constexpr const char* run_key = "run";
constexpr const char* bytes_key = "bytes";
constexpr const char* automatic_key = "automatic";
constexpr const char* hidden_key = "hidden";
constexpr const char* name_key = "name";
constexpr const char* source_key = "image_source";
constexpr const char* digest_key = "image_digest";
constexpr const char* group_key = "group";
/// The image of one whose bytes have gone. Nobody keeps an image for it.
constexpr const char* image_was_key = "was_image";
constexpr std::string_view label_prefix = "label/"; ///< Then its place, and as value NAME=VALUE.

constexpr std::string_view list_of_all = "@snapshots/all/";
constexpr std::string_view list_of_origins = "@snapshots/of/";
constexpr std::string_view list_of_trees = "@snapshots/tree/";
constexpr std::string_view list_of_parents = "@snapshots/under/";
constexpr std::string_view list_of_groups = "@snapshots/in/";
// The same, the oldest first.
constexpr std::string_view turned_list_of_origins = "@snapshots/of_up/";
constexpr std::string_view turned_list_of_groups = "@snapshots/in_up/";
// The same, the newest first, and with what is told of each.
constexpr std::string_view turned_list_of_parents = "@snapshots/under_down/";

snapshot_state state_in(const record_entries& record) {
  const auto word = text_in(record, state_key);
  for (const auto each : {snapshot_state::deleted, snapshot_state::failed})
    if (word == name_of(each))
      return each;
  return snapshot_state::created;
}

/// What a list tells: all keys but the holders.
record_entries told_of(const record_entries& record) {
  record_entries told;
  for (const auto& each : record)
    if (!each.first.starts_with('@') && !each.first.starts_with(held_prefix))
      told.insert(each);
  return told;
}

} // namespace

std::vector<storage::change> changes_of(const snapshot_description& is) {
  std::vector<storage::change> changes{{taken_key, std::to_string(is.created_ms)},
                                       {used_key, std::to_string(is.last_used_ms)},
                                       {origin_key, is.origin},
                                       {root_key, is.root},
                                       {image_key, is.image},
                                       {bytes_key, std::to_string(is.bytes)}};
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty())
      changes.push_back({key, value});
  };
  add(parent_key, is.parent);
  add(source_key, is.image_source);
  add(digest_key, is.image_digest);
  add(name_key, is.name);
  add(group_key, is.group);
  add(run_key, is.run != 0 ? std::to_string(is.run) : std::string{});
  add(keep_key, is.keep_ms != 0 ? std::to_string(is.keep_ms) : std::string{});
  add(automatic_key, is.automatic ? "1" : "");
  add(hidden_key, is.hidden ? "1" : "");
  add(pending_key, is.pending ? "1" : "");
  add(state_key, is.state != snapshot_state::created ? name_of(is.state) : "");
  std::size_t place = 0;
  for (const auto& [name, value] : is.labels)
    changes.push_back({std::string{label_prefix} + std::to_string(place++), name + '=' + value});
  return changes;
}

std::vector<storage::change> changes_when_freed(const record_entries& record) {
  return {{freed_key, "1"},           {image_was_key, text_in(record, image_key)},
          {image_key, std::nullopt},  {source_key, std::nullopt},
          {digest_key, std::nullopt}, {snapshot_key, std::nullopt},
          {no_copy_key, std::nullopt}};
}

std::optional<snapshot_description> describe(std::string id, const record_entries& record) {
  const auto taken = number_in(record, taken_key);
  if (!taken)
    return std::nullopt;
  snapshot_description is{std::move(id), text_in(record, origin_key)};
  is.parent = text_in(record, parent_key);
  is.root = text_in(record, root_key);
  is.run = static_cast<std::uint64_t>(number_in(record, run_key).value_or(0));
  is.image = text_in(record, record.contains(image_key) ? image_key : image_was_key);
  is.image_source = text_in(record, source_key);
  is.image_digest = text_in(record, digest_key);
  is.bytes = static_cast<std::uint64_t>(number_in(record, bytes_key).value_or(0));
  is.automatic = record.contains(automatic_key);
  is.hidden = record.contains(hidden_key);
  is.name = text_in(record, name_key);
  is.group = text_in(record, group_key);
  is.created_ms = *taken;
  is.last_used_ms = number_in(record, used_key).value_or(*taken);
  is.keep_ms = number_in(record, keep_key).value_or(0);
  is.state = state_in(record);
  const auto copy = text_in(record, snapshot_key);
  is.copy = copy.substr(copy.find(' ') + 1);
  is.no_copy = text_in(record, no_copy_key);
  is.pending = record.contains(pending_key);
  for (auto at = record.lower_bound(label_prefix);
       at != record.end() && at->first.starts_with(label_prefix); ++at) {
    const auto equals = at->second.find('=');
    if (equals != std::string::npos)
      is.labels[at->second.substr(0, equals)] = at->second.substr(equals + 1);
  }
  for (auto at = record.lower_bound(held_prefix);
       at != record.end() && at->first.starts_with(held_prefix); ++at)
    ++is.sandboxes;
  return is;
}

namespace {

std::string list_for(std::string_view kind_of_list, std::string_view of) {
  return std::string{kind_of_list}.append(of) + '/';
}

} // namespace

std::string list_under(std::string_view parent) {
  return list_for(list_of_parents, parent);
}

std::string list_of_origin(std::string_view origin) {
  return list_for(list_of_origins, origin);
}

std::optional<counted_as> counted(const snapshot_description& is, const record_entries& record) {
  if (record.contains(freed_key))
    return std::nullopt;
  if (is.hidden || is.pending)
    return counted_as::hidden;
  switch (is.state) {
    case snapshot_state::created: return counted_as::created;
    case snapshot_state::deleted: return counted_as::deleted;
    case snapshot_state::failed: return counted_as::failed;
  }
  return std::nullopt;
}

std::vector<storage::entry> lines_of(std::string_view id, const record_entries& record) {
  const auto is = describe(std::string{id}, record);
  if (!is || is->hidden || is->pending)
    return {};
  std::vector<storage::entry> all;
  const auto told = to_text(told_of(record));
  const auto down = newest_first(is->created_ms), up = oldest_first(is->created_ms);
  if (is->state != snapshot_state::deleted) {
    all.push_back({std::string{list_of_all} + down, told});
    all.push_back({list_of_origin(is->origin) + down, told});
    if (is_group(is->group)) {
      const auto group = group_in_key(is->group);
      all.push_back({std::string{list_of_groups} + group + down, told});
      all.push_back({std::string{turned_list_of_groups} + group + up, told});
      all.push_back({list_for(turned_list_of_origins, is->origin) + up, told});
    }
  }
  all.push_back({list_for(list_of_trees, is->root) + up, told});
  if (!is->parent.empty()) {
    all.push_back({list_under(is->parent) + up, {}});
    if (is_group(is->group))
      all.push_back({list_for(turned_list_of_parents, is->parent) + down, told});
  }
  return all;
}

result<listed> range_of(const list_snapshots& wanted) {
  listed range;
  if (!wanted.root.empty())
    range.mark = list_for(list_of_trees, wanted.root);
  else if (!wanted.parent.empty())
    range.mark = list_for(turned_list_of_parents, wanted.parent);
  else if (!wanted.origin.empty())
    range.mark = list_for(wanted.turned ? turned_list_of_origins : list_of_origins, wanted.origin);
  else if (!wanted.group.empty() && !is_group(wanted.group))
    return error{errc::invalid_request, "a group has 1 to 128 bytes"};
  else if (!wanted.group.empty())
    range.mark = std::string{wanted.turned ? turned_list_of_groups : list_of_groups} +
                 group_in_key(wanted.group);
  else
    range.mark = list_of_all;
  if (wanted.after.empty())
    return range;
  const std::string_view place{wanted.after};
  const auto turn = place.substr(0, time_digits);
  if (place.size() < time_digits + 2 || place[time_digits] != '.' ||
      place.size() > time_digits + 1 + storage::store::max_owner_bytes ||
      turn.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return error{errc::invalid_request, "the cursor is not valid"};
  range.after = {
    range.mark + std::string{turn},
    object_name{std::string{kind}, std::string{place.substr(time_digits + 1)}}.owner()};
  return range;
}

snapshot_page page_of(const list_snapshots& wanted, const storage::mark_page& found) {
  snapshot_page page;
  const auto mark = range_of(wanted)->mark;
  for (const auto& each : found.lines) {
    const auto name = object_name::parse(each.owner);
    auto is = name ? describe(name->id, from_text(each.value)) : std::nullopt;
    if (is)
      page.snapshots.push_back(std::move(*is));
    if (name && found.more)
      page.next = each.key.substr(std::min(mark.size(), each.key.size())) + '.' + name->id;
  }
  return page;
}

std::optional<error> malformed(const take_snapshot& wanted) {
  const auto wrong = [](std::string why) { return error{errc::invalid_request, std::move(why)}; };
  if (wanted.name.size() > limits::snapshot_name_bytes)
    return wrong("the name of a snapshot has at most " +
                 std::to_string(limits::snapshot_name_bytes) + " bytes");
  if (wanted.keep_ms < 0)
    return wrong("the time for which a snapshot is kept is not negative");
  std::size_t bytes = 0;
  for (const auto& [name, value] : wanted.labels) {
    if (name.empty() || name.find('=') != std::string::npos)
      return wrong("the name of a label is not empty and has no =");
    bytes += name.size() + value.size();
  }
  if (bytes > limits::snapshot_labels_bytes)
    return wrong("the labels of a snapshot have at most " +
                 std::to_string(limits::snapshot_labels_bytes) + " bytes");
  return std::nullopt;
}

} // namespace insula::actors::snapshots

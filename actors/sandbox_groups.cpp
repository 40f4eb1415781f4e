#include "actors/sandbox_groups.hpp"

#include "actors/run_record.hpp"
#include "actors/sandbox_list.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace insula::actors {

namespace {

constexpr std::size_t longest_text = 128;

/// Behind each name, so that none is the beginning of another: lower than what a name may have.
constexpr char end_of_name = ' ';

struct listed_order {
  list_order by;
  bool descends;
  std::string_view word; ///< In keys.
  char sign;             ///< In places.
};
constexpr listed_order orders[] = {{list_order::created, false, "created/up/", 'c'},
                                   {list_order::created, true, "created/down/", 'C'},
                                   {list_order::name, false, "name/up/", 'n'},
                                   {list_order::name, true, "name/down/", 'N'},
                                   {list_order::state, false, "state/up/", 's'},
                                   {list_order::state, true, "state/down/", 'S'}};

const listed_order& order_of(const list_group& list) {
  return *std::find_if(std::begin(orders), std::end(orders), [&](const auto& each) {
    return each.by == list.by && each.descends == list.descends;
  });
}

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

std::string mark_of(std::string_view group, const listed_order& order) {
  return std::string{group_lists}.append(group_in_key(group)).append(order.word);
}

/// In the other direction. It has no slash and no NUL if the text is ASCII.
std::string mirrored(std::string text) {
  for (auto& each : text)
    each = static_cast<char>(~static_cast<unsigned char>(each));
  return text;
}

/// What a list is ordered by.
std::string turn_in(const listed_order& order, std::int64_t ms) {
  return order.descends ? newest_first(ms) : oldest_first(ms);
}
std::string turn_in(const listed_order& order, std::string name) {
  return order.descends ? mirrored(std::move(name)) : name;
}

} // namespace

bool is_group(std::string_view text) {
  return !text.empty() && text.size() <= longest_text;
}

std::string group_in_key(std::string_view group) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string text;
  for (const char each : group)
    if ((is_visible({&each, 1}) && each != '/' && each != '%'))
      text += each;
    else
      (text += '%') += {digits[static_cast<unsigned char>(each) / 16],
                        digits[static_cast<unsigned char>(each) % 16]};
  return text += '/';
}

std::vector<storage::entry> group_marks(const record_entries& record, const grouped_sandbox& member,
                                        std::string_view turn) {
  std::vector<storage::entry> marks;
  if (!is_group(member.group) || !is_group(member.name) || !is_visible(member.name))
    return marks;
  const auto created = number_in(record, created_key).value_or(0);
  const auto run = last_run(record);
  const auto since = run ? state_since(*run) : created;
  for (const auto& each : orders) {
    auto key = mark_of(member.group, each);
    switch (each.by) {
      case list_order::created: key += turn_in(each, created); break;
      case list_order::name: key += turn_in(each, member.name + end_of_name); break;
      case list_order::state: key += turn_in(each, since); break;
    }
    marks.push_back({key.append(turn), {}});
  }
  return marks;
}

result<marked_range> range_of(const list_group& wanted) {
  const auto refused = [](std::string why) { return error{errc::invalid_request, std::move(why)}; };
  if (!is_group(wanted.group))
    return refused("a group has 1 to 128 bytes");
  const auto& order = order_of(wanted);
  auto mark = mark_of(wanted.group, order);
  marked_range range{mark, {}};
  if (!wanted.name_prefix.empty()) {
    if (wanted.by != list_order::name || wanted.name_prefix.size() > longest_text ||
        !is_visible(wanted.name_prefix))
      return refused("the beginning of names is not valid");
    range.mark += turn_in(order, wanted.name_prefix);
  }
  if (wanted.after.empty())
    return range;
  // The order's sign, what the key has behind the list's mark, and the owner.
  const std::string_view place = wanted.after;
  const auto slash = place.rfind('/');
  const auto owner = place.substr(std::min(place.size(), slash + 1));
  if (place[0] != order.sign || slash == std::string_view::npos || owner.empty() ||
      owner.size() > storage::store::max_owner_bytes ||
      mark.size() + slash > storage::store::max_key_bytes)
    return refused("the place is not one of this list");
  range.after = {mark.append(place.substr(1, slash - 1)), std::string{owner}};
  return range;
}

std::string_view turn_of_mark(const storage::owned_entry& mark) {
  const std::string_view key = mark.key;
  return key.substr(key.size() - std::min(key.size(), time_digits));
}

std::string place_of(const list_group& list, const storage::owned_entry& mark) {
  const auto& order = order_of(list);
  const auto first = mark_of(list.group, order).size();
  return order.sign + mark.key.substr(std::min(first, mark.key.size())) + '/' + mark.owner;
}

} // namespace insula::actors

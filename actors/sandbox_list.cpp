#include "actors/sandbox_list.hpp"

#include "actors/record_keys.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <future>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace insula::actors {

namespace {

constexpr auto last_time = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t time_digits = 16;

/// Of a record, what its line has as well.
constexpr std::array told_of{created_key, expires_key, image_key, paused_key};

std::string value_of(const record_entries& record, std::string_view key) {
  const auto at = record.find(key);
  return at == record.end() ? std::string{} : at->second;
}

/// The later, the lower.
std::string turn_of(std::int64_t created_ms) {
  const auto left = static_cast<std::uint64_t>(last_time - std::max<std::int64_t>(created_ms, 0));
  std::array<char, time_digits> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), left, 16).ptr;
  const auto count = static_cast<std::size_t>(end - digits.data());
  return std::string(time_digits - count, '0').append(digits.data(), count);
}

// ---- A line's text: "<key> <bytes of the value>\n<value>\n" for each.

std::string to_text(const record_entries& told) {
  std::string text;
  for (const auto& [key, value] : told)
    text += key + ' ' + std::to_string(value.size()) + '\n' + value + '\n';
  return text;
}

/// As far as it makes sense.
record_entries from_text(std::string_view text) {
  record_entries told;
  while (!text.empty()) {
    const auto blank = text.find(' ');
    const auto line = text.find('\n');
    std::size_t size = 0;
    if (line == std::string_view::npos || blank > line ||
        std::from_chars(text.data() + blank + 1, text.data() + line, size).ptr !=
          text.data() + line ||
        size >= text.size() - line - 1)
      return told;
    told.emplace(text.substr(0, blank), text.substr(line + 1, size));
    text.remove_prefix(line + size + 2);
  }
  return told;
}

} // namespace

sandbox_description describe_record(const record_entries& record) {
  sandbox_description said;
  said.exists = record.contains(created_key);
  said.metadata = metadata_of(record);
  said.created_ms = number_in(record, created_key).value_or(0);
  said.expires_ms = number_in(record, expires_key);
  said.image = value_of(record, image_key);
  said.paused = record.contains(paused_key);
  return said;
}

std::optional<storage::entry> line_of(const record_entries& record) {
  const auto created = record.find(created_key);
  if (created == record.end())
    return std::nullopt;
  record_entries told;
  for (const auto key : told_of)
    if (const auto at = record.find(key); at != record.end())
      told.insert(*at);
  for (const auto& each : record)
    if (is_metadata(each.first))
      told.insert(each);
  return storage::entry{std::string{sandbox_list} + turn_of(number_in(created->second).value_or(0)),
                        to_text(told)};
}

described_sandbox read_line(const storage::owned_entry& line) {
  return {line.owner, describe_record(from_text(line.value))};
}

std::string cursor_of(const storage::owned_entry& line) {
  return line.key.substr(std::min(sandbox_list.size(), line.key.size())) + '.' + line.owner;
}

result<storage::mark_position> position_of(std::string_view cursor) {
  if (cursor.empty())
    return storage::mark_position{};
  const auto turn = cursor.substr(0, time_digits);
  if (cursor.size() < time_digits + 2 || cursor[time_digits] != '.' ||
      cursor.size() > time_digits + 1 + storage::store::max_owner_bytes ||
      turn.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return error{errc::invalid_request, "the cursor is not valid"};
  return storage::mark_position{std::string{sandbox_list}.append(turn),
                                std::string{cursor.substr(time_digits + 1)}};
}

// ---- Records of an earlier version

namespace {

/// Records that are under way at a time. Each of a lone node's takes an epoch.
constexpr std::size_t at_once = 128;

template <class T>
std::pair<std::function<void(result<T>)>, std::future<result<T>>> answer_to() {
  auto told = std::make_shared<std::promise<result<T>>>();
  auto got = told->get_future();
  return {[told](result<T> said) { told->set_value(std::move(said)); }, std::move(got)};
}

struct older_record {
  std::string owner;
  std::future<result<storage::epoch>> lease;
  storage::epoch held = 0;
  std::future<result<void>> written;
};

result<std::set<std::string>> listed_already(storage::store& records) {
  std::set<std::string> owners;
  storage::mark_position after;
  while (true) {
    const auto page = records.scan(sandbox_list, after, storage::store::max_page_lines);
    if (!page)
      return page.reason();
    for (const auto& each : page->lines)
      owners.insert(each.owner);
    if (!page->more)
      return owners;
    after = {page->lines.back().key, page->lines.back().owner};
  }
}

std::optional<storage::change> line_that_lacks(storage::store& records, const std::string& owner) {
  const auto found = records.read(owner);
  if (!found)
    return std::nullopt; // The next start tries again.
  record_entries record;
  for (const auto& [key, value] : *found)
    record.emplace(key, value);
  auto line = line_of(record);
  if (!line || record.contains(line->key))
    return std::nullopt;
  return storage::change{std::move(line->key), std::move(line->value)};
}

} // namespace

std::size_t list_older_records(storage::store& records, storage::lease_service& leases,
                               const std::function<void(const std::string& owner)>& let_go) {
  const auto listed = listed_already(records);
  const auto all = listed ? records.find(created_key) : listed.reason();
  std::size_t written = 0;
  if (!all)
    return written;
  std::vector<std::string> lacking;
  for (const auto& each : *all)
    if (each.key == created_key && !listed->contains(each.owner))
      lacking.push_back(each.owner);
  for (std::size_t from = 0; from < lacking.size(); from += at_once) {
    std::vector<older_record> some;
    for (auto i = from; i < std::min(from + at_once, lacking.size()); ++i) {
      auto [told, got] = answer_to<storage::epoch>();
      some.push_back({lacking[i], std::move(got), 0, {}});
      leases.acquire(lacking[i], std::move(told));
    }
    for (auto& each : some) {
      const auto held = each.lease.get();
      if (!held)
        continue;
      each.held = *held;
      if (auto line = line_that_lacks(records, each.owner)) {
        auto [told, got] = answer_to<void>();
        each.written = std::move(got);
        records.commit({each.owner, each.held, {std::move(*line)}}, std::move(told));
      }
    }
    for (auto& each : some) {
      if (each.written.valid() && each.written.get())
        ++written;
      if (each.held == 0)
        continue;
      leases.release(each.owner, each.held);
      let_go(each.owner);
    }
  }
  return written;
}

} // namespace insula::actors

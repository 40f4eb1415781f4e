#include "actors/sandbox_list.hpp"

#include "actors/drive_record.hpp"
#include "actors/record_keys.hpp"
#include "actors/record_text.hpp"
#include "actors/run_record.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace insula::actors {

namespace {

constexpr auto last_time = std::numeric_limits<std::int64_t>::max();

/// Of a record, what its line has as well.
constexpr std::array told_of{created_key,    expires_key, image_key,     paused_key,
                             run_totals_key, disk_of_key, drive_user_key};

std::string value_of(const record_entries& record, std::string_view key) {
  const auto at = record.find(key);
  return at == record.end() ? std::string{} : at->second;
}

std::string digits_of(std::int64_t number) {
  std::array<char, time_digits> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
  const auto count = static_cast<std::size_t>(end - digits.data());
  return std::string(time_digits - count, '0').append(digits.data(), count);
}

/// Of the record with that text as its created_key.
std::string line_key(std::string_view created) {
  return std::string{sandbox_list} + newest_first(number_in(created).value_or(0));
}

} // namespace

std::string newest_first(std::int64_t ms) {
  return digits_of(last_time - std::max<std::int64_t>(ms, 0));
}

std::string oldest_first(std::int64_t ms) {
  return digits_of(std::max<std::int64_t>(ms, 0));
}

sandbox_description describe_record(const record_entries& record) {
  sandbox_description said;
  said.exists = record.contains(created_key);
  said.metadata = metadata_of(record);
  said.created_ms = number_in(record, created_key).value_or(0);
  said.expires_ms = number_in(record, expires_key);
  said.image = value_of(record, image_key);
  said.paused = record.contains(paused_key);
  said.run = last_run(record);
  said.totals = totals_of(record);
  said.snapshot = value_of(record, disk_of_key);
  said.drive_user = read_drive_use(value_of(record, drive_user_key));
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
  if (const auto run = last_run(record))
    told[key_of_run(run->number)] = text_of(*run);
  return storage::entry{line_key(created->second), to_text(told)};
}

std::vector<storage::entry> lines_of(const record_entries& record, const group_rule& groups) {
  auto line = line_of(record);
  if (!line)
    return {};
  const auto member = groups ? groups(metadata_of(record)) : std::nullopt;
  auto all = member ? group_marks(record, *member, line->key.substr(sandbox_list.size()))
                    : std::vector<storage::entry>{};
  all.push_back(std::move(*line));
  return all;
}

std::vector<std::string> prefixes_of_lines() {
  return {std::string{sandbox_list}, std::string{older_sandbox_list}, std::string{group_lists}};
}

storage::mark_position line_behind(const storage::owned_entry& mark) {
  return {std::string{sandbox_list}.append(turn_of_mark(mark)), mark.owner};
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
  std::string line; ///< The key that its line has.
  std::future<result<storage::epoch>> lease = {};
  storage::epoch held = 0;
  std::future<result<void>> written = {};
};

result<bool> is_listed(storage::store& records, const older_record& which) {
  const auto line = records.read(which.owner, which.line);
  if (!line)
    return line.reason();
  return !line->empty();
}

/// Adds those whose line is one of an earlier version.
result<void> add_older_lines(storage::store& records, std::vector<older_record>& to) {
  storage::mark_position after;
  for (bool more = true; more;) {
    const auto page = records.scan(older_sandbox_list, after, storage::store::max_page_lines);
    if (!page)
      return page.reason();
    for (const auto& each : page->lines)
      to.push_back(
        {each.owner, std::string{sandbox_list} + each.key.substr(older_sandbox_list.size())});
    more = page->more;
    if (more)
      after = {page->lines.back().key, page->lines.back().owner};
  }
  return {};
}

/// Those without a line, as far as that is known before their leases are held.
result<std::vector<older_record>> without_line(storage::store& records, found_records found) {
  const auto all = records.find(created_key);
  if (!all)
    return all.reason();
  std::vector<older_record> some;
  for (const auto& each : *all)
    if (each.key == created_key)
      some.push_back({each.owner, line_key(each.value)});
  if (found == found_records::older) {
    if (auto added = add_older_lines(records, some); !added)
      return added.reason();
    return some;
  }
  if (some.empty())
    return some;
  // There is no line without a record.
  const auto lines = records.count(sandbox_list);
  if (!lines)
    return lines.reason();
  if (*lines == some.size())
    return std::vector<older_record>{};
  std::vector<older_record> lacking;
  for (auto& each : some) {
    const auto listed = is_listed(records, each);
    if (!listed)
      return listed.reason();
    if (!*listed)
      lacking.push_back(std::move(each));
  }
  return lacking;
}

/// With its lease held: what brings its lines up. None: they are by now, or it has been deleted.
result<std::vector<storage::change>>
lines_that_lack(storage::store& records, const std::string& owner, const group_rule& groups) {
  const auto found = records.read(owner);
  if (!found)
    return found.reason();
  record_entries record;
  for (const auto& [key, value] : *found)
    record.emplace(key, value);
  return underived(record, prefixes_of_lines(), lines_of(record, groups));
}

/// Of one start.
class listing {
public:
  listing(storage::store& records, storage::lease_service& leases, const group_rule& groups,
          const owner_function& let_go)
      : records_(records)
      , leases_(leases)
      , groups_(groups)
      , let_go_(let_go) {}

  /// False: none of them could be done, so nothing suggests that others can.
  bool take(std::vector<older_record> some) {
    const auto before = failed_.size();
    for (auto& each : some) {
      auto [told, got] = answer_to<storage::epoch>();
      each.lease = std::move(got);
      leases_.acquire(each.owner, std::move(told));
    }
    bool readable = true;
    for (auto& each : some)
      readable = hold(each, readable);
    for (auto& each : some)
      finish(each);
    return failed_.size() - before < some.size();
  }

  void leave(older_record which) { failed_.push_back(std::move(which)); }

  listed_records outcome() {
    // Another node may have been quicker.
    for (std::size_t i = 0; i < failed_.size(); ++i) {
      const auto listed = is_listed(records_, failed_[i]);
      if (!listed) { // Nor are the others asked for, each of which may take seconds.
        said_.left += failed_.size() - i;
        break;
      }
      said_.left += *listed ? 0 : 1;
    }
    if (said_.left == 0)
      said_.why.reset();
    return std::move(said_);
  }

private:
  /// May records be read?
  bool hold(older_record& one, bool readable) {
    const auto held = one.lease.get();
    if (!held) {
      if (held.reason().code != errc::stale_epoch) // Else it is another node's to bring up.
        fail(one, held.reason());
      return readable;
    }
    one.held = *held;
    if (!readable) {
      failed_.push_back({one.owner, one.line});
      return false;
    }
    auto lines = lines_that_lack(records_, one.owner, groups_);
    if (!lines) {
      fail(one, lines.reason());
      return false;
    }
    if (!lines->empty()) {
      auto [told, got] = answer_to<void>();
      one.written = std::move(got);
      records_.commit({one.owner, one.held, std::move(*lines)}, std::move(told));
    }
    return true;
  }

  void finish(older_record& one) {
    if (one.written.valid()) {
      if (const auto outcome = one.written.get())
        ++said_.written;
      else
        fail(one, outcome.reason());
    }
    if (one.held == 0)
      return;
    leases_.release(one.owner, one.held);
    let_go_(one.owner);
  }

  void fail(const older_record& one, const error& why) {
    failed_.push_back({one.owner, one.line});
    if (!said_.why)
      said_.why = why;
  }

  storage::store& records_;
  storage::lease_service& leases_;
  const group_rule& groups_;
  const owner_function& let_go_;
  listed_records said_;
  std::vector<older_record> failed_;
};

} // namespace

listed_records list_older_records(storage::store& records, storage::lease_service& leases,
                                  found_records found, const group_rule& groups,
                                  const owner_function& let_go) {
  auto lacking = without_line(records, found);
  if (!lacking)
    return {0, 0, lacking.reason()};
  listing of{records, leases, groups, let_go};
  bool goes_on = true;
  for (auto at = lacking->begin(); at != lacking->end();) {
    const auto end =
      at + std::min<std::ptrdiff_t>(at_once, static_cast<std::ptrdiff_t>(lacking->end() - at));
    std::vector<older_record> some{std::move_iterator{at}, std::move_iterator{end}};
    at = end;
    if (goes_on)
      goes_on = of.take(std::move(some));
    else
      for (auto& each : some)
        of.leave(std::move(each));
  }
  return of.outcome();
}

void tell(const listed_records& of) {
  if (of.written > 0)
    log::info("records.listed", {{"sandboxes", of.written}});
  if (of.why)
    log::warning("records.not_listed",
                 {{"sandboxes", of.left > 0 ? std::to_string(of.left) : "unknown"},
                  {"reason", of.why->message}});
}

} // namespace insula::actors

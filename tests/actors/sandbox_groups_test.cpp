// The lists of each group of sandboxes: their marks, and pages of them.
#include "actors/run_record.hpp"
#include "actors/sandbox_groups.hpp"
#include "base/limits.hpp"
#include "tests/actors/fixture.hpp"
#include "tests/support/store_calls.hpp"

#include <algorithm>
#include <random>
#include <set>

using namespace insula;
using namespace insula::actors;
using namespace insula::test;

namespace {

/// "GROUP NAME", as the API `grouped` says it.
std::optional<grouped_sandbox> by_text(const api_metadata& all) {
  const auto at = all.find("grouped");
  if (at == all.end())
    return std::nullopt;
  const auto blank = at->second.find(' ');
  return grouped_sandbox{at->second.substr(0, blank), at->second.substr(blank + 1)};
}

/// A sandbox as the lists know it.
struct listed {
  std::string id, group, name;
  std::int64_t created_ms = 0, since_ms = 0;
};

record_entries record_of(const listed& is) {
  sandbox_run run;
  run.state = run_state::stopped;
  run.ended_ms = is.since_ms;
  return {{"created_ms", std::to_string(is.created_ms)},
          {"image", "host"},
          {"metadata/grouped", is.group + ' ' + is.name},
          {key_of_run(1), text_of(run)}};
}

std::vector<storage::change> changes_of(const record_entries& record) {
  std::vector<storage::change> changes;
  for (const auto& [key, value] : record)
    changes.push_back({key, value});
  return with_line(std::move(changes), by_text);
}

/// In place of all that the sandbox has.
void write(storage::store& where, const listed& is) {
  REQUIRE(commit_now(where, {is.id, 1, changes_of(record_of(is)), {""}}));
}
void remove(storage::store& where, const std::string& id) {
  REQUIRE(commit_now(where, {id, 1, {}, {""}}));
}

/// As an earlier version has left it: with the line of the list of all, and in no group's.
void write_older(storage::store& where, const listed& is) {
  std::vector<storage::change> changes;
  const auto record = record_of(is);
  for (const auto& [key, value] : record)
    changes.push_back({key, value});
  const auto line = *line_of(record);
  changes.push_back(
    {std::string{older_sandbox_list} + line.key.substr(sandbox_list.size()), line.value});
  REQUIRE(commit_now(where, {is.id, 5, std::move(changes)}));
}

std::string id_of(std::size_t number) {
  std::string id = "aaaa";
  for (std::size_t i = 4; i > 0; number /= 26)
    id[--i] = static_cast<char>('a' + number % 26);
  return id;
}

/// Where the sandbox stands in this list: by what it is ordered, and of two alike by its id.
std::pair<std::string, std::string> turn_of(const list_group& list, const listed& is) {
  auto key = list.by == list_order::name      ? is.name
             : list.by == list_order::created ? oldest_first(is.created_ms)
                                              : oldest_first(is.since_ms);
  return {std::move(key), is.id};
}

/// One that is ordered after another comes later; if the list descends, earlier.
bool is_before(const list_group& list, const listed& one, const listed& other) {
  const auto a = turn_of(list, one), b = turn_of(list, other);
  return list.descends ? a.first > b.first : a.first < b.first;
}

/// All of the list, by pages of random length; between two of them `meanwhile` happens.
template <class Ask>
std::vector<std::string> walk(
  list_group list, std::mt19937& rng, const Ask& ask,
  const std::function<void()>& meanwhile = [] {}) {
  std::vector<std::string> ids;
  list.after.clear();
  do {
    list.limit = 1 + static_cast<std::uint32_t>(rng() % 9);
    const group_page page = ask(list);
    CHECK(page.sandboxes.size() <= list.limit);
    for (const auto& each : page.sandboxes)
      ids.push_back(each.id);
    list.after = page.next;
    meanwhile();
  } while (!list.after.empty());
  return ids;
}

std::vector<list_group> all_lists(const std::string& group) {
  std::vector<list_group> all;
  for (const auto by : {list_order::created, list_order::name, list_order::state})
    for (const bool descends : {false, true})
      all.push_back({group, by, descends});
  return all;
}

struct listing_node : small_node {
  node_directory_actor directory = make_directory();

  group_page ask(const list_group& wanted) {
    return sys.ask<group_page>(directory, wanted).value();
  }
  errc refusal(const list_group& wanted) {
    return sys.ask<group_page>(directory, wanted).reason().code;
  }
  std::string ids(list_group wanted) {
    wanted.limit = 100;
    std::string all;
    for (const auto& each : ask(wanted).sandboxes)
      all += (all.empty() ? "" : " ") + each.id;
    return all;
  }
};

} // namespace

TEST_CASE("a record has a mark for each order of its group, and none without a group",
          "[actors][list]") {
  auto record = record_of({"abc", "prj/1", "box", 1'000, 2'000});
  const auto keys = [&] {
    std::set<std::string> all;
    for (const auto& each : lines_of(record, by_text))
      all.insert(each.key);
    return all;
  };
  CHECK(keys().size() == 7);
  for (const auto& each : lines_of(record, by_text))
    if (each.key.starts_with(group_lists)) {
      CHECK(each.value.empty());
      CHECK(line_behind({"abc", each.key, ""}) ==
            storage::mark_position{line_of(record)->key, "abc"});
    }
  const auto before = keys();
  record["image"] = "other"; // What a list only tells of moves nothing.
  CHECK(keys() == before);
  sandbox_run run;
  run.started_ms = 3'000;
  run.state = run_state::running;
  record[key_of_run(2)] = text_of(run); // A state moves the two marks of its order.
  auto now = keys();
  std::erase_if(now, [&](const auto& each) { return before.contains(each); });
  CHECK(now.size() == 2);
  CHECK(lines_of(record, {}).size() == 1);
  for (const auto* odd : {" box", "prj ", "prj two words", "prj b\tx"}) {
    CAPTURE(odd);
    record["metadata/grouped"] = odd;
    CHECK(keys().size() == 1);
  }
  record["metadata/grouped"] = std::string(129, 'p') + " box";
  CHECK(keys().size() == 1);
  record["metadata/grouped"] = std::string(128, '\xff') + ' ' + std::string(128, '~');
  for (const auto& each : keys())
    CHECK(each.size() <= storage::store::max_key_bytes);
  record.erase("metadata/grouped");
  CHECK(keys().size() == 1);
  CHECK(lines_of({{"image", "host"}}, by_text).empty());
}

TEST_CASE("a list has its group's sandboxes alone, in its order", "[actors][list]") {
  listing_node node;
  auto& disk = node.store.disk;
  write(disk, {"a", "prj", "ab-c", 3'000, 50});
  write(disk, {"b", "prj", "ab", 1'000, 70});
  write(disk, {"c", "prj", "abc", 2'000, 60});
  write(disk, {"d", "prj", "Ab", 4'000, 80});
  // Groups whose names nearly are a part of a key.
  write(disk, {"e", "prj/name/up", "ab", 1, 1});
  write(disk, {"f", "pr", "ab", 1, 1});
  write(disk, {"g", "prj%2F", "ab", 1, 1});
  write(disk, {"h", "prj\x01", "ab", 1, 1});
  const auto list = [&](list_order by, bool descends, const std::string& prefix = {}) {
    return node.ids({"prj", by, descends, prefix});
  };
  CHECK(list(list_order::created, true) == "d a c b");
  CHECK(list(list_order::created, false) == "b c a d");
  CHECK(list(list_order::name, false) == "d b a c");
  CHECK(list(list_order::name, true) == "c a b d");
  CHECK(list(list_order::state, true) == "d b c a");
  CHECK(list(list_order::state, false) == "a c b d");
  CHECK(list(list_order::name, false, "ab") == "b a c");
  CHECK(list(list_order::name, true, "ab") == "c a b");
  CHECK(list(list_order::name, true, "abc") == "c");
  CHECK(list(list_order::name, false, "abcd").empty());
  const std::map<std::string, std::string> others{
    {"prj/name/up", "e"}, {"pr", "f"}, {"prj%2F", "g"}, {"prj\x01", "h"}, {"x", ""}};
  for (const auto& [group, id] : others)
    for (const auto& each : all_lists(group))
      CHECK(node.ids(each) == id);

  // A place goes from page to page, and to no other list.
  for (auto each : all_lists("prj")) {
    each.limit = 3;
    const auto page = node.ask(each);
    REQUIRE(page.sandboxes.size() == 3);
    CHECK(page.next == page.sandboxes[2].place);
    auto next = each;
    next.after = page.sandboxes[0].place;
    CHECK(node.ask(next).sandboxes[0].id == page.sandboxes[1].id);
    for (auto other : all_lists("prj"))
      if (other.by != each.by || other.descends != each.descends) {
        other.after = page.next;
        CHECK(node.refusal(other) == errc::invalid_request);
      }
    for (const auto& odd :
         {std::string{"x"}, std::string{"/"}, page.next.substr(0, 1), page.next.substr(1),
          page.next + std::string(128, 'a'), page.next[0] + std::string(1'100, 'k') + "/a",
          page.next.substr(0, page.next.rfind('/') + 1)}) {
      CAPTURE(odd);
      next.after = odd;
      CHECK(node.refusal(next) == errc::invalid_request);
    }
  }
  list_group odd{"prj"};
  odd.limit = 0;
  CHECK(node.refusal(odd) == errc::invalid_request);
  odd.limit = limits::list_page_sandboxes + 1;
  CHECK(node.refusal(odd) == errc::invalid_request);
  odd = {"prj", list_order::created, true, "ab"};
  CHECK(node.refusal(odd) == errc::invalid_request);
  odd = {"prj", list_order::name, true, "a b"};
  CHECK(node.refusal(odd) == errc::invalid_request);
  CHECK(node.refusal({""}) == errc::invalid_request);
  CHECK(node.refusal({std::string(129, 'p')}) == errc::invalid_request);
}

TEST_CASE("whatever comes and goes between pages, what stays is on one of them",
          "[actors][list][property]") {
  listing_node node;
  auto& disk = node.store.disk;
  const auto seed = GENERATE(take(3, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  std::map<std::string, listed> stay, all;
  std::size_t last = 0;
  const auto one_more = [&] {
    const auto id = id_of(++last);
    // Few moments, so that many are alike, and names that begin alike.
    const listed is{id, rng() % 3 == 0 ? "other" : "prj",
                    std::string(1 + rng() % 3, 'a') + std::to_string(rng() % 50) + "-" + id,
                    static_cast<std::int64_t>(rng() % 30), static_cast<std::int64_t>(rng() % 30)};
    write(disk, is);
    all[id] = is;
    return id;
  };
  for (int i = 0; i < 120; ++i) {
    const auto id = one_more();
    stay[id] = all[id];
  }
  const auto meanwhile = [&] {
    for (auto left = rng() % 4; left > 0; --left) {
      one_more();
      const auto at = std::next(all.begin(), static_cast<std::ptrdiff_t>(rng() % all.size()));
      if (stay.contains(at->first))
        continue;
      if (rng() % 2 == 0) { // Deleted, or with another run.
        remove(disk, at->first);
        all.erase(at);
      } else {
        at->second.since_ms += 7;
        write(disk, at->second);
      }
    }
  };
  for (const auto& list : all_lists("prj")) {
    CAPTURE(static_cast<int>(list.by), list.descends);
    const auto ids = walk(
      list, rng, [&](const auto& wanted) { return node.ask(wanted); }, meanwhile);
    std::vector<listed> seen;
    std::set<std::string> once;
    for (const auto& each : ids) {
      if (const auto at = stay.find(each); at != stay.end()) {
        CHECK(once.insert(each).second);
        CHECK(at->second.group == "prj");
        seen.push_back(at->second);
      }
    }
    CHECK(once.size() ==
          static_cast<std::size_t>(std::count_if(stay.begin(), stay.end(), [](const auto& each) {
            return each.second.group == "prj";
          })));
    CHECK(std::is_sorted(seen.begin(), seen.end(), [&](const auto& one, const auto& other) {
      return is_before(list, one, other);
    }));
    // When nothing changes, the pages are the list.
    const auto still = walk(list, rng, [&](const auto& wanted) { return node.ask(wanted); });
    CHECK(std::set(still.begin(), still.end()).size() == still.size());
    CHECK(still.size() ==
          static_cast<std::size_t>(std::count_if(
            all.begin(), all.end(), [](const auto& each) { return each.second.group == "prj"; })));
  }
}

TEST_CASE("a page of a group among ten thousand sandboxes reads a mark and a line for each",
          "[actors][list]") {
  listing_node node;
  constexpr int many = 10'000;
  for (int i = 0; i < many; ++i)
    node.store.disk.commit(
      {id_of(static_cast<std::size_t>(i)), 1,
       changes_of(record_of({"", i % 2 == 0 ? "prj" : "other", "box-" + std::to_string(i), i, i}))},
      [](const result<void>&) {});
  for (auto list : all_lists("prj")) {
    list.limit = 20;
    auto before = node.store.disk.lines_read();
    auto page = node.ask(list);
    CHECK(page.sandboxes.size() == 20);
    CHECK(node.store.disk.lines_read() - before == 41);
    list.after = page.next; // A later page costs what the first one does.
    before = node.store.disk.lines_read();
    page = node.ask(list);
    CHECK(page.sandboxes.size() == 20);
    CHECK(node.store.disk.lines_read() - before == 41);
  }
  CHECK(node.store.finds == 0);
}

TEST_CASE("a sandbox that goes while a page is read is not on it, and large ones end it early",
          "[actors][list]") {
  listing_node node;
  auto& disk = node.store.disk;
  for (int i = 0; i < 7; ++i) {
    auto record = record_of({"", "prj", "box", i, i});
    record["metadata/large"] = std::string(900'000, 'x');
    REQUIRE(commit_now(disk, {id_of(static_cast<std::size_t>(i)), 1, changes_of(record)}));
  }
  list_group list{"prj", list_order::created, false};
  list.limit = 7;
  const auto first = node.ask(list);
  CHECK(first.sandboxes.size() == 5); // 4 MiB.
  list.after = first.next;
  CHECK(node.ask(list).sandboxes.size() == 2);
  CHECK(node.ask(list).next.empty());
  // Marks whose lines have gone since they were read.
  const auto lacks_line = [&](int i) {
    const auto id = id_of(static_cast<std::size_t>(i));
    REQUIRE(commit_now(disk, {id, 1, {}, {std::string{sandbox_list}}}));
  };
  list = {"prj", list_order::created, false};
  list.limit = 3;
  lacks_line(0);
  lacks_line(2);
  auto page = node.ask(list);
  REQUIRE(page.sandboxes.size() == 1);
  CHECK(page.sandboxes[0].id == id_of(1));
  list.after = page.next;
  lacks_line(3);
  lacks_line(4);
  lacks_line(5);
  page = node.ask(list);
  CHECK(page.sandboxes.empty());
  list.after = page.next;
  page = node.ask(list);
  REQUIRE(page.sandboxes.size() == 1);
  CHECK(page.sandboxes[0].id == id_of(6));
  CHECK(page.next.empty());
}

TEST_CASE("what a store refuses is told to a list of a group", "[actors][list]") {
  listing_node node;
  write(node.store.disk, {"a", "prj", "box", 1, 1});
  node.store.read_error = error{errc::store_failed, "no disk"};
  CHECK(node.refusal({"prj"}) == errc::store_failed);
}

TEST_CASE("a sandbox is in its group's lists from its definition until its end", "[actors][list]") {
  listing_node node;
  node.options->groups = by_text;
  const auto box = node.make_sandbox();
  define_sandbox made;
  made.metadata["grouped"] = "prj box";
  const auto writes = node.store.writes;
  node.sys.ask<sandbox_description>(box, made).value();
  CHECK(node.store.writes == writes + 1); // All in one batch.
  for (const auto& each : all_lists("prj"))
    CHECK(node.ids(each) == "abc");
  const auto listed_now = [&] {
    list_group list{"prj", list_order::state};
    list.limit = 5;
    return node.ask(list).sandboxes.at(0);
  };
  const auto place = listed_now().place;
  const auto run = node.sys.ask<run_report>(box, begin_run{60'000}).value().run;
  CHECK(listed_now().is.run->number == run.number);
  node.sys.advance(std::chrono::seconds{1});
  node.sys.ask<run_report>(box, stop_run{run.number}).value();
  CHECK(listed_now().is.run->state == run_state::stopped);
  CHECK(listed_now().place != place);
  for (const auto& each : all_lists("prj"))
    CHECK(node.ids(each) == "abc");
  node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value();
  for (const auto& each : all_lists("prj"))
    CHECK(node.ids(each).empty());
  CHECK(node.store.disk.scan("@", {}, 10)->lines.empty());
}

TEST_CASE("a record of an earlier version that is used comes to be in its group's lists",
          "[actors][list]") {
  listing_node node;
  node.leases.last = 10;
  node.options->groups = by_text;
  write_older(node.store.disk, {"abc", "prj", "box", 5, 6});
  CHECK(node.ids({"prj"}).empty());
  const auto box = node.make_sandbox();
  redefine_sandbox change;
  change.expires_ms = node.sys.time.unix_ms() + 100'000;
  node.sys.ask<sandbox_description>(box, change).value();
  CHECK(node.ids({"prj"}) == "abc");
  CHECK(*node.store.disk.count(older_sandbox_list) == 0);
}

TEST_CASE("a start brings records of an earlier version into their groups' lists, once",
          "[actors][list]") {
  listing_node node;
  auto& disk = node.store.disk;
  node.leases.last = 10;
  constexpr std::size_t many = 300;
  for (std::size_t i = 0; i < many; ++i)
    write_older(disk, {id_of(i), i % 3 == 0 ? "other" : "prj", "box", static_cast<std::int64_t>(i),
                       static_cast<std::int64_t>(i)});
  const auto bring_up = [&] {
    return list_older_records(disk, node.leases, found_records::all, by_text, [](const auto&) {});
  };
  auto outcome = bring_up();
  CHECK(outcome.written == many);
  CHECK(outcome.left == 0);
  CHECK_FALSE(outcome.why);
  CHECK(*disk.count(older_sandbox_list) == 0);
  CHECK(*disk.count(sandbox_list) == many);
  CHECK(*disk.count("@group/prj/name/up/") == 200);
  CHECK(*disk.count("@group/other/state/down/") == 100);
  list_group list{"prj"};
  list.limit = 2;
  CHECK(node.ask(list).sandboxes[1].is.created_ms == 298);
  const auto before = disk.lines_read();
  outcome = bring_up();
  CHECK(outcome.written == 0);
  CHECK(disk.lines_read() == before);
}

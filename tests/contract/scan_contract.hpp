// What every store promises of marks and of the pages of their lists. A file that includes this one
// first says which stores are meant: INSULA_SCANNED, a list of fixtures. A fixture has
//   open(), reopen()  the store, and the same one after a restart
//   may_write(owner)  an epoch at which that owner can be written, and which is the newest
//   lines_read()      lines that its scans, and entries that read_each() have read so far, in this
//                     life
#pragma once

#include "storage/store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/store_calls.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace insula::test::scanned {

using namespace insula::storage;

using lines = std::vector<owned_entry>;

inline change put(std::string key, std::string value) {
  return {std::move(key), std::move(value)};
}
inline change removed(std::string key) {
  return {std::move(key), std::nullopt};
}

template <class Fixture>
void write(Fixture& disk, store& s, const std::string& owner, std::vector<change> changes,
           std::vector<std::string> cleared = {}) {
  const auto outcome =
    commit_now(s, {owner, disk.may_write(owner), std::move(changes), std::move(cleared)});
  if (!outcome)
    FAIL(outcome.reason().message);
}

inline mark_page page_of(store& s, std::string_view mark, const mark_position& after,
                         std::size_t limit) {
  auto page = s.scan(mark, after, limit);
  if (!page)
    FAIL(page.reason().message);
  return std::move(*page);
}

/// All of a list, by pages.
inline lines all_of(store& s, std::string_view mark, std::size_t limit = 1'000) {
  lines all;
  mark_position after;
  for (bool more = true; more;) {
    auto page = page_of(s, mark, after, limit);
    CHECK(page.lines.size() <= limit);
    more = page.more;
    REQUIRE((!more || !page.lines.empty()));
    for (auto& each : page.lines)
      all.push_back(std::move(each));
    if (more)
      after = {all.back().key, all.back().owner};
  }
  return all;
}

inline std::uint64_t count_of(store& s, std::string_view mark) {
  const auto counted = s.count(mark);
  REQUIRE(counted);
  return *counted;
}

} // namespace insula::test::scanned

TEMPLATE_TEST_CASE("marked entries are a list over all owners", "[contract][scan]",
                   INSULA_SCANNED) {
  using namespace insula;
  using namespace insula::test;
  using namespace insula::test::scanned;
  TestType disk;
  auto& s = disk.open();
  write(disk, s, "b", {put("@l/1", "b1"), put("x", "hidden"), put("@m/1", "other")});
  write(disk, s, "a", {put("@l/1", "a1"), put("@l/3", "a3"), put("l/2", "hidden")});
  write(disk, s, "c", {put("@l/2", "c2")});
  const lines expected{
    {"a", "@l/1", "a1"}, {"b", "@l/1", "b1"}, {"c", "@l/2", "c2"}, {"a", "@l/3", "a3"}};
  CHECK(all_of(s, "@l/") == expected);
  CHECK(count_of(s, "@l/") == 4);
  CHECK(count_of(s, "@m/") == 1);
  CHECK(count_of(s, "@n/") == 0);
  CHECK(all_of(s, "@l/1").size() == 2);
  CHECK(as_map(*s.read("a")) == contents{{"@l/1", "a1"}, {"@l/3", "a3"}, {"l/2", "hidden"}});

  SECTION("that survives a restart") {
    auto& again = disk.reopen();
    CHECK(all_of(again, "@l/") == expected);
    CHECK(count_of(again, "@l/") == 4);
  }
  SECTION("a mark is replaced with its entry") {
    write(disk, s, "a", {put("@l/1", "new")});
    CHECK(all_of(s, "@l/").front() == owned_entry{"a", "@l/1", "new"});
    CHECK(count_of(s, "@l/") == 4);
  }
  SECTION("a mark goes with its entry") {
    write(disk, s, "a", {removed("@l/1"), removed("@l/9")});
    CHECK(all_of(s, "@l/") == lines(expected.begin() + 1, expected.end()));
  }
  SECTION("a mark goes with its prefix, and what the same batch puts there stays") {
    write(disk, s, "a", {put("@l/4", "a4"), put("@l/3", "again")}, {"@l/"});
    CHECK(
      all_of(s, "@l/") ==
      lines{{"b", "@l/1", "b1"}, {"c", "@l/2", "c2"}, {"a", "@l/3", "again"}, {"a", "@l/4", "a4"}});
  }
  SECTION("a mark goes with its owner") {
    write(disk, s, "a", {}, {""});
    CHECK(all_of(s, "@l/") == lines{{"b", "@l/1", "b1"}, {"c", "@l/2", "c2"}});
    CHECK(all_of(disk.reopen(), "@l/").size() == 2);
  }
  SECTION("of two changes of one mark in a batch the later stands") {
    write(disk, s, "c", {put("@l/2", "1"), put("@l/2", "2"), put("@l/5", ""), removed("@l/5")});
    CHECK(all_of(s, "@l/")[2].value == "2");
    CHECK(count_of(s, "@l/") == 4);
  }
  SECTION("a batch that is refused changes no mark") {
    REQUIRE_FALSE(commit_now(s, {"a", disk.may_write("a") - 1, {put("@l/0", "late")}, {""}}));
    CHECK(all_of(s, "@l/") == expected);
  }
}

TEMPLATE_TEST_CASE("a page reads as many lines as it has, and one more", "[contract][scan]",
                   INSULA_SCANNED) {
  using namespace insula;
  using namespace insula::test;
  using namespace insula::test::scanned;
  TestType disk;
  auto& s = disk.open();
  constexpr int owners = 40, each = 10;
  for (int i = 0; i < owners; ++i) {
    std::vector<change> changes;
    for (int k = 0; k < each; ++k) {
      changes.push_back(put("@l/" + std::to_string(100 + (i * 7 + k * 31) % 400), "line"));
      changes.push_back(put("x/" + std::to_string(k), "no line"));
    }
    write(disk, s, "owner-" + std::to_string(i), std::move(changes));
  }
  const auto all = all_of(s, "@l/");
  REQUIRE(all.size() == owners * each);
  CHECK(count_of(s, "@l/") == all.size());
  CHECK(std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::tie(a.key, a.owner) < std::tie(b.key, b.owner);
  }));
  for (const std::size_t limit : {1u, 7u, 20u, 399u, 400u, 401u, 1'000u}) {
    CAPTURE(limit);
    const auto at = limit == 1 ? std::size_t{17} : std::size_t{0};
    const mark_position after =
      at == 0 ? mark_position{} : mark_position{all[at - 1].key, all[at - 1].owner};
    const auto before = disk.lines_read();
    const auto page = page_of(s, "@l/", after, limit);
    const auto expected = std::min(limit, all.size() - at);
    REQUIRE(page.lines.size() == expected);
    CHECK(std::equal(page.lines.begin(), page.lines.end(),
                     all.begin() + static_cast<std::ptrdiff_t>(at)));
    CHECK(page.more == (at + expected < all.size()));
    CHECK(disk.lines_read() - before <= limit + 1);
    CHECK(all_of(s, "@l/", limit) == all);
    const auto keys = s.scan_keys("@l/", after, limit);
    REQUIRE(keys);
    REQUIRE(keys->lines.size() == expected);
    CHECK(keys->more == page.more);
    for (std::size_t i = 0; i < expected; ++i)
      CHECK(keys->lines[i] == owned_entry{page.lines[i].owner, page.lines[i].key, ""});
  }
  const auto before = disk.lines_read();
  CHECK(page_of(s, "@l/", {all.back().key, all.back().owner}, 5).lines.empty());
  CHECK(page_of(s, "@none/", {}, 5).lines.empty());
  CHECK(page_of(s, "@l/", {"@z", "z"}, 5).lines.empty());
  CHECK(disk.lines_read() == before);
  CHECK(page_of(s, "@l/", {"@a", "z"}, 5).lines.front() == all.front()); // Ahead of the list.
}

TEMPLATE_TEST_CASE("what changes between two pages moves no other line", "[contract][scan]",
                   INSULA_SCANNED) {
  using namespace insula;
  using namespace insula::test;
  using namespace insula::test::scanned;
  TestType disk;
  auto& s = disk.open();
  for (int i = 0; i < 9; ++i)
    write(disk, s, "o" + std::to_string(i), {put("@l/" + std::to_string(i), "")});
  auto page = page_of(s, "@l/", {}, 3);
  REQUIRE(page.lines.size() == 3);
  const mark_position after{page.lines.back().key, page.lines.back().owner};
  write(disk, s, "o2", {}, {""});           // The line that the next page begins behind,
  write(disk, s, "o0", {put("@l/00", "")}); // one more ahead of it,
  write(disk, s, "o4", {removed("@l/4")});  // and one less, and one more, on the next page.
  write(disk, s, "new", {put("@l/5", "")});
  page = page_of(s, "@l/", after, 3);
  CHECK(page.lines == lines{{"o3", "@l/3", ""}, {"new", "@l/5", ""}, {"o5", "@l/5", ""}});
  CHECK(page.more);
}

TEMPLATE_TEST_CASE("a page of large lines ends early, and the list goes on", "[contract][scan]",
                   INSULA_SCANNED) {
  using namespace insula;
  using namespace insula::test;
  using namespace insula::test::scanned;
  TestType disk;
  auto& s = disk.open();
  const std::string large(store::max_value_bytes, 'v');
  for (int i = 0; i < 6; ++i)
    write(disk, s, "o" + std::to_string(i), {put("@l/" + std::to_string(i), large)});
  const auto page = page_of(s, "@l/", {}, 6);
  CHECK(page.lines.size() == store::max_page_bytes / store::max_value_bytes);
  CHECK(page.more);
  CHECK(s.scan_keys("@l/", {}, 6)->lines.size() == 6);
  CHECK_FALSE(s.scan_keys("@l/", {}, 6)->more);
  CHECK(all_of(s, "@l/").size() == 6);
}

TEMPLATE_TEST_CASE("keys of lists are any bytes", "[contract][scan]", INSULA_SCANNED) {
  using namespace insula;
  using namespace insula::test;
  using namespace insula::test::scanned;
  TestType disk;
  auto& s = disk.open();
  const std::vector<std::string> keys{std::string{"@l/\0a", 5}, "@l/\n1\n", "@l/\\n", "@l/a/b",
                                      "@l/\xff\xff"};
  std::vector<change> changes;
  for (const auto& each : keys)
    changes.push_back(put(each, "of " + each));
  write(disk, s, "a", changes);
  write(disk, s, "b", changes);
  CHECK(count_of(s, "@l/") == 2 * keys.size());
  const auto all = all_of(s, "@l/", 1);
  REQUIRE(all.size() == 2 * keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    CHECK(all[2 * i] == owned_entry{"a", keys[i], "of " + keys[i]});
    CHECK(all[2 * i + 1] == owned_entry{"b", keys[i], "of " + keys[i]});
  }
  auto& again = disk.reopen(); // It knows of all of them, and so removes all of them.
  write(disk, again, "a", {}, {""});
  CHECK(count_of(again, "@l/") == keys.size());
  write(disk, again, "b", {removed(keys[0]), removed(keys[1])});
  CHECK(all_of(again, "@l/").front() == owned_entry{"b", keys[2], "of " + keys[2]});
}

TEMPLATE_TEST_CASE("a scan that makes no sense is refused", "[contract][scan]", INSULA_SCANNED) {
  using namespace insula;
  using namespace insula::test;
  using namespace insula::test::scanned;
  TestType disk;
  auto& s = disk.open();
  const auto refused = [&](std::string_view mark, std::size_t limit) {
    const auto page = s.scan(mark, {}, limit), keys = s.scan_keys(mark, {}, limit);
    CHECK(static_cast<bool>(page) == static_cast<bool>(keys));
    return !page && page.reason().code == errc::invalid_request;
  };
  CHECK(refused("", 1));
  CHECK(refused("x", 1));
  CHECK(refused("@" + std::string(store::max_key_bytes, 'k'), 1));
  CHECK(refused("@l/", 0));
  CHECK(refused("@l/", store::max_page_lines + 1));
  CHECK_FALSE(refused("@l/", store::max_page_lines));
  CHECK_FALSE(s.count("x"));
}

TEMPLATE_TEST_CASE("entries are read by their places, in the places' order", "[contract][scan]",
                   INSULA_SCANNED) {
  using namespace insula;
  using namespace insula::test;
  using namespace insula::test::scanned;
  TestType disk;
  auto& s = disk.open();
  write(disk, s, "a", {put("@l/1", "a1"), put("@l/11", "a11"), put("x", "ax"), put("y", "")});
  write(disk, s, "b", {put("@l/1", "b1"), put("x/y", "bxy"), put(std::string{"\0\xff", 2}, "odd")});
  const auto before = disk.lines_read();
  const auto read = s.read_each({{"x/y", "b"},
                                 {"@l/1", "a"},
                                 {"x", "b"}, // There is none,
                                 {"@l/1", "c"},
                                 {"", "a"},
                                 {std::string{"\0\xff", 2}, "b"},
                                 {"y", "a"},
                                 {"x", "a"},
                                 {"@l/1", "b"},
                                 {"@l/1", "a"}}); // and this one is asked for twice.
  REQUIRE(read);
  CHECK_FALSE(read->more);
  CHECK(read->lines == lines{{"b", "x/y", "bxy"},
                             {"a", "@l/1", "a1"},
                             {"b", std::string{"\0\xff", 2}, "odd"},
                             {"a", "y", ""},
                             {"a", "x", "ax"},
                             {"b", "@l/1", "b1"},
                             {"a", "@l/1", "a1"}});
  CHECK(disk.lines_read() - before == 7);
  CHECK(s.read_each({})->lines.empty());
  write(disk, s, "a", {removed("x"), put("y", "now")}, {"@l/"});
  auto& again = disk.reopen();
  CHECK(again.read_each({{"x", "a"}, {"y", "a"}, {"@l/1", "a"}})->lines ==
        lines{{"a", "y", "now"}});

  std::vector<mark_position> many(store::max_page_lines, {"y", "a"});
  CHECK(again.read_each(many)->lines.size() == store::max_page_lines);
  many.push_back({"y", "a"});
  CHECK(again.read_each(many).reason().code == errc::invalid_request);
}

TEMPLATE_TEST_CASE("of large entries as many are read as a page has room for", "[contract][scan]",
                   INSULA_SCANNED) {
  using namespace insula;
  using namespace insula::test;
  using namespace insula::test::scanned;
  TestType disk;
  auto& s = disk.open();
  const std::string large(store::max_value_bytes, 'v');
  std::vector<mark_position> places;
  for (int i = 0; i < 6; ++i) {
    const auto owner = "o" + std::to_string(i);
    write(disk, s, owner, {put("x", large)});
    places.push_back({"x", owner});
  }
  constexpr auto room = store::max_page_bytes / store::max_value_bytes;
  auto read = s.read_each(places);
  REQUIRE(read);
  CHECK(read->lines.size() == room);
  CHECK(read->more);
  CHECK(read->lines.back().owner == places[room - 1].owner);
  places.erase(places.begin(), places.begin() + room);
  read = s.read_each(places);
  CHECK(read->lines.size() == 6 - room);
  CHECK_FALSE(read->more);
  places.assign(room, {"x", "o1"}); // The last one fills it, and nothing is left out.
  CHECK_FALSE(s.read_each(places)->more);
}

TEMPLATE_TEST_CASE("lists behave like a sorted map, whatever is written",
                   "[contract][scan][property]", INSULA_SCANNED) {
  using namespace insula;
  using namespace insula::test;
  using namespace insula::test::scanned;
  const auto seed = GENERATE(take(5, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  std::map<std::pair<std::string, std::string>, std::string> model; // By key and owner.
  TestType disk;
  auto* s = &disk.open();
  for (int step = 0; step < 60; ++step) {
    const std::string owner(1, static_cast<char>('a' + rng() % 5));
    std::vector<change> changes;
    std::vector<std::string> cleared;
    if (rng() % 6 == 0)
      cleared.emplace_back(rng() % 2 == 0 ? "" : "@l/1");
    for (const auto& prefix : cleared)
      std::erase_if(model, [&](const auto& each) {
        return each.first.second == owner && each.first.first.starts_with(prefix);
      });
    for (auto left = rng() % 4; left > 0; --left) {
      const auto key = "@l/" + std::to_string(10 + rng() % 20);
      changes.push_back(rng() % 3 == 0 ? removed(key) : put(key, std::to_string(rng() % 100)));
      model.erase({key, owner});
      if (changes.back().value)
        model[{key, owner}] = *changes.back().value;
    }
    write(disk, *s, owner, std::move(changes), std::move(cleared));
    if (rng() % 20 == 0)
      s = &disk.reopen();
    lines expected;
    for (const auto& [at, value] : model)
      expected.push_back({at.second, at.first, value});
    REQUIRE(all_of(*s, "@l/", 1 + rng() % 9) == expected);
    REQUIRE(count_of(*s, "@l/") == expected.size());
  }
}

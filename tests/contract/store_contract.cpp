// What every store promises. A new store is done when it passes this file.
#include "tests/support/store_calls.hpp"
#include "tests/support/store_fixtures.hpp"

#include <algorithm>
#include <atomic>
#include <latch>
#include <numeric>
#include <random>
#include <thread>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;

namespace {

using entries = std::vector<entry>;

change put(std::string key, std::string value) {
  return {std::move(key), std::move(value)};
}
change removed(std::string key) {
  return {std::move(key), std::nullopt};
}

errc code_of(const result<void>& outcome) {
  REQUIRE_FALSE(outcome);
  return outcome.reason().code;
}

entries read_all(store& s, std::string_view owner) {
  auto all = s.read(owner);
  REQUIRE(all);
  return *all;
}

std::vector<std::string> owners_of(store& s) {
  auto ids = s.owners();
  REQUIRE(ids);
  return *ids;
}

} // namespace

TEMPLATE_TEST_CASE("a store gives back what it acknowledged", "[contract][store]", in_memory,
                   sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  const std::string bytes{"\0\xff/\n", 4};
  REQUIRE(commit_now(s, {"a", 1, {put("state", "ready"), put(bytes, bytes), put("empty", "")}}));
  const entries expected{{bytes, bytes}, {"empty", ""}, {"state", "ready"}};
  CHECK(read_all(s, "a") == expected);
  CHECK(read_all(disk.reopen(), "a") == expected);
  CHECK(read_all(disk.open(), "b").empty());
}

TEMPLATE_TEST_CASE("a store replaces and removes keys", "[contract][store]", in_memory, sqlite,
                   node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  REQUIRE(commit_now(s, {"a", 1, {put("x", "1"), put("y", "1")}}));
  REQUIRE(commit_now(s, {"a", 1, {put("x", "2"), removed("y"), removed("never there")}}));
  CHECK(read_all(s, "a") == entries{{"x", "2"}});
}

TEMPLATE_TEST_CASE("of two changes of one key in a batch the later stands", "[contract][store]",
                   in_memory, sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  REQUIRE(commit_now(s, {"a", 1, {put("x", "1"), put("x", "2"), put("y", "1"), removed("y")}}));
  CHECK(read_all(s, "a") == entries{{"x", "2"}});
}

TEMPLATE_TEST_CASE("keys are ordered as bytes, owner by owner", "[contract][store]", in_memory,
                   sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  REQUIRE(
    commit_now(s, {"ab", 1, {put("\xc3\xa4", ""), put("b", ""), put("B", ""), put("a/b", "")}}));
  REQUIRE(commit_now(s, {"a", 1, {put("b", "of a")}}));
  CHECK(read_all(s, "ab") == entries{{"B", ""}, {"a/b", ""}, {"b", ""}, {"\xc3\xa4", ""}});
  CHECK(read_all(s, "a") == entries{{"b", "of a"}});
}

TEMPLATE_TEST_CASE("owners are those with a key, in order", "[contract][store]", in_memory, sqlite,
                   node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  CHECK(owners_of(s).empty());
  for (const auto* owner : {"c", "a", "b", "_lease"})
    REQUIRE(commit_now(s, {owner, 1, {put("x", ""), put("y", "")}}));
  REQUIRE(commit_now(s, {"only-an-epoch", 1, {}}));
  REQUIRE(commit_now(s, {"b", 1, {removed("x"), removed("y")}}));
  CHECK(owners_of(s) == std::vector<std::string>{"a", "c"});
  CHECK(owners_of(disk.reopen()) == std::vector<std::string>{"a", "c"});
}

TEMPLATE_TEST_CASE("a store refuses an older epoch and keeps nothing of it", "[contract][store]",
                   in_memory, sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  REQUIRE(commit_now(s, {"a", 5, {put("x", "5")}}));
  CHECK(code_of(commit_now(s, {"a", 4, {put("x", "4"), put("y", "4")}})) == errc::stale_epoch);
  CHECK(read_all(s, "a") == entries{{"x", "5"}});

  SECTION("an equal epoch may go on writing") {
    CHECK(commit_now(s, {"a", 5, {put("x", "5 again")}}));
    CHECK(read_all(s, "a") == entries{{"x", "5 again"}});
  }
  SECTION("a batch without changes is a fence") {
    REQUIRE(commit_now(s, {"a", 6, {}}));
    CHECK(code_of(commit_now(s, {"a", 5, {put("x", "late")}})) == errc::stale_epoch);
  }
  SECTION("epochs are each owner's own") {
    CHECK(commit_now(s, {"b", 1, {put("x", "1")}}));
  }
  SECTION("the epoch outlives the keys and the process") {
    REQUIRE(commit_now(s, {"a", 6, {removed("x")}}));
    auto& again = disk.reopen();
    CHECK(code_of(commit_now(again, {"a", 5, {put("x", "late")}})) == errc::stale_epoch);
    CHECK(owners_of(again).empty());
  }
}

TEMPLATE_TEST_CASE("a stale batch does not hurt those it waits with", "[contract][store]",
                   in_memory, sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  busy_store busy{s, {"busy", 1, {put("x", "")}}};
  auto before = commit_async(s, {"a", 2, {put("x", "2")}});
  auto late = commit_async(s, {"a", 1, {put("x", "1")}});
  auto after = commit_async(s, {"a", 3, {put("y", "3")}});
  busy.release();
  CHECK(before.get());
  CHECK(code_of(late.get()) == errc::stale_epoch);
  CHECK(after.get());
  CHECK(read_all(s, "a") == entries{{"x", "2"}, {"y", "3"}});
}

TEMPLATE_TEST_CASE("a store refuses what is malformed or over its size", "[contract][store]",
                   in_memory, sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  const auto refused = [&](write_batch batch) {
    return code_of(commit_now(s, std::move(batch))) == errc::invalid_request;
  };
  CHECK(commit_now(s, {std::string(store::max_owner_bytes, 'o'), 1, {}}));
  CHECK(refused({std::string(store::max_owner_bytes + 1, 'o'), 1, {}}));
  CHECK(refused({"", 1, {}}));
  CHECK(refused({"a/b", 1, {}}));
  CHECK(refused({"a", 0, {}}));
  CHECK(refused({"a", ~epoch{0}, {}}));

  const std::string longest_key(store::max_key_bytes, 'k');
  const std::string largest_value(store::max_value_bytes, 'v');
  CHECK(commit_now(s, {"a", 1, {put(longest_key, largest_value)}}));
  CHECK(refused({"a", 1, {put("x", "kept?"), put("", "")}}));
  CHECK(refused({"a", 1, {put(longest_key + "k", "")}}));
  CHECK(refused({"a", 1, {removed(longest_key + "k")}}));
  CHECK(refused({"a", 1, {put("x", largest_value + "v")}}));
  CHECK(read_all(s, "a") == entries{{longest_key, largest_value}});

  write_batch large{"a", 1, {}};
  while (large.changes.size() < 16)
    large.changes.push_back(put(std::to_string(large.changes.size()), largest_value));
  CHECK(size_of(large) > store::max_batch_bytes);
  CHECK(refused(large));
  large.changes.pop_back();
  CHECK(commit_now(s, large));
}

TEMPLATE_TEST_CASE("answers come in the order of commits, and none is missing", "[contract][store]",
                   in_memory, sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  std::vector<int> answered; // Touched by one thread at a time, says the contract.
  std::promise<void> last;
  for (int i = 0; i < 500; ++i)
    s.commit({"a", 1, {put("x", std::to_string(i))}}, [&, i](result<void> r) {
      answered.push_back(r ? i : -1);
      if (i == 499)
        last.set_value();
    });
  last.get_future().wait();
  std::vector<int> expected(500);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(answered == expected);
  CHECK(read_all(s, "a") == entries{{"x", "499"}});
}

TEMPLATE_TEST_CASE("an answer may commit again, and sees its own batch", "[contract][store]",
                   in_memory, sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  auto outcome = std::make_shared<std::promise<std::pair<std::size_t, bool>>>();
  s.commit({"a", 1, {put("x", "1")}}, [&s, outcome](result<void>) {
    const auto seen = s.read("a");
    const auto count = seen ? seen->size() : 0;
    s.commit({"a", 1, {put("y", "2")}}, [outcome, count](result<void> r) {
      outcome->set_value({count, static_cast<bool>(r)});
    });
  });
  CHECK(outcome->get_future().get() == std::pair<std::size_t, bool>{1, true});
  CHECK(read_all(s, "a") == entries{{"x", "1"}, {"y", "2"}});
}

TEMPLATE_TEST_CASE("a thousand commits from many threads are all kept", "[contract][store]",
                   in_memory, sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  constexpr int threads = 8;
  constexpr int each = 125;
  std::atomic<int> good{0};
  std::latch answered{threads * each};
  std::vector<std::thread> committing;
  for (int t = 0; t < threads; ++t)
    committing.emplace_back([&, t] {
      const auto owner = "owner-" + std::to_string(t);
      for (int i = 0; i < each; ++i)
        s.commit({owner, 1, {put(std::to_string(i), owner), put("last", std::to_string(i))}},
                 [&](result<void> r) {
                   good += r ? 1 : 0;
                   answered.count_down();
                 });
    });
  for (auto& one : committing)
    one.join();
  answered.wait();
  CHECK(good == threads * each);
  auto& again = disk.reopen();
  for (int t = 0; t < threads; ++t) {
    const auto kept = as_map(read_all(again, "owner-" + std::to_string(t)));
    CHECK(kept.size() == each + 1);
    CHECK(kept.at("last") == std::to_string(each - 1));
  }
}

TEMPLATE_TEST_CASE("a store that is full of waiting batches refuses one more at once",
                   "[contract][store]", in_memory, sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  std::vector<std::future<result<void>>> accepted;
  std::size_t most = store::max_waiting;
  write_batch batch{"a", 1, {put("x", "")}};
  SECTION("by number") {}
  SECTION("by size") {
    for (int i = 0; i < 8; ++i)
      batch.changes.push_back(put(std::to_string(i), std::string(store::max_value_bytes, 'v')));
    most = store::max_waiting_bytes / size_of(batch);
  }
  busy_store busy{s, {"busy", 1, {}}};
  for (std::size_t i = 0; i < most; ++i)
    accepted.push_back(commit_async(s, batch));
  CHECK(code_of(commit_now(s, batch)) == errc::limit_reached);
  busy.release();
  CHECK(std::all_of(accepted.begin(), accepted.end(), [](auto& one) { return bool{one.get()}; }));
  CHECK(commit_now(s, batch)); // There is room again.
}

TEMPLATE_TEST_CASE("a store behaves like a map, whatever is written", "[contract][store][property]",
                   in_memory, sqlite, node_sqlite) {
  const auto seed = GENERATE(take(20, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  struct owned {
    epoch newest = 0;
    contents kept;
  };
  std::map<std::string, owned> model; // The same thing, written the obvious way.
  TestType disk;
  auto* s = &disk.open();
  for (int step = 0; step < 60; ++step) {
    write_batch batch{std::string(1, static_cast<char>('a' + rng() % 4)), 1 + rng() % 10, {}};
    for (auto changes = rng() % 5; changes > 0; --changes) {
      const auto key = std::to_string(rng() % 6);
      batch.changes.push_back(rng() % 3 == 0
                                ? removed(key)
                                : put(key, std::string(rng() % 5'000, static_cast<char>(rng()))));
    }
    auto& expected = model[batch.owner];
    const bool fresh = batch.written_at >= expected.newest;
    if (fresh) {
      expected.newest = batch.written_at;
      for (const auto& [key, value] : batch.changes) {
        expected.kept.erase(key);
        if (value)
          expected.kept[key] = *value;
      }
    }
    const auto outcome = commit_now(*s, batch);
    REQUIRE(bool{outcome} == fresh);
    if (!fresh)
      REQUIRE(outcome.reason().code == errc::stale_epoch);
    if (rng() % 20 == 0)
      s = &disk.reopen();
    REQUIRE(as_map(read_all(*s, batch.owner)) == expected.kept);
  }
  std::vector<std::string> with_keys;
  for (const auto& [owner, expected] : model)
    if (!expected.kept.empty())
      with_keys.push_back(owner);
  CHECK(owners_of(*s) == with_keys);
}

TEMPLATE_TEST_CASE("what begins with a prefix is read and cleared with it", "[contract][store]",
                   in_memory, sqlite, node_sqlite) {
  TestType disk;
  auto& s = disk.open();
  REQUIRE(commit_now(s, {"a",
                         1,
                         {put("p", "0"), put("p/1", "1"), put("p/2", "2"), put("p0", "3"),
                          put("\xff", "4"), put("\xff\xff", "5"), put("q", "6")}}));
  REQUIRE(commit_now(s, {"b", 1, {put("p/1", "of b"), put("x", "")}}));
  REQUIRE(commit_now(s, {"_of storage", 1, {put("p/1", "hidden")}}));
  const auto some = s.read("a", "p/");
  REQUIRE(some);
  CHECK(*some == entries{{"p/1", "1"}, {"p/2", "2"}});
  CHECK(*s.read("a", "\xff") == entries{{"\xff", "4"}, {"\xff\xff", "5"}});
  CHECK(s.read("a", "none")->empty());
  CHECK(s.read("a", "")->size() == 7);
  using found = std::vector<owned_entry>;
  CHECK(*s.find("p/") == found{{"a", "p/1", "1"}, {"a", "p/2", "2"}, {"b", "p/1", "of b"}});
  CHECK(s.find("")->size() == 9);

  SECTION("before what the same batch puts there") {
    REQUIRE(commit_now(s, {"a", 1, {put("p/3", "3")}, {"p/", "\xff"}}));
    CHECK(read_all(s, "a") == entries{{"p", "0"}, {"p/3", "3"}, {"p0", "3"}, {"q", "6"}});
  }
  SECTION("all of it") {
    REQUIRE(commit_now(s, {"a", 2, {}, {""}}));
    CHECK(read_all(s, "a").empty());
    CHECK(owners_of(s) == std::vector<std::string>{"b"});
    CHECK(code_of(commit_now(s, {"a", 1, {put("p", "late")}})) == errc::stale_epoch);
  }
  SECTION("by an older owner not at all") {
    REQUIRE(commit_now(s, {"a", 2, {}}));
    CHECK(code_of(commit_now(s, {"a", 1, {}, {""}})) == errc::stale_epoch);
    CHECK(read_all(s, "a").size() == 7);
  }
  SECTION("a prefix has a size, too") {
    CHECK(code_of(commit_now(s, {"a", 1, {}, {std::string(store::max_key_bytes + 1, 'k')}})) ==
          errc::invalid_request);
  }
  CHECK(read_all(disk.reopen(), "b").size() == 2);
}

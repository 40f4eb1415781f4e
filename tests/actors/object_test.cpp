#include "base/limits.hpp"
#include "tests/actors/counter.hpp"
#include "tests/actors/fixture.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// Counters over two stores that the test plays.
struct small_world {
  fake_store cluster;
  fake_store node;
  test_system sys;
  std::uint64_t tenure = 0; ///< The number of this node's ownership of all.
  std::shared_ptr<const actors::keepers> keep = std::make_shared<const actors::keepers>(
    actors::keepers{cluster.spawn(sys.get()),
                    node.spawn(sys.get()),
                    {},
                    &sys.time,
                    {},
                    [this](const std::string&) { return tenure; }});
  std::vector<caf::actor> made;

  ~small_world() {
    for (auto& each : std::exchange(made, {}))
      caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    keep = nullptr;
    cluster.held.clear(); // What is never answered keeps its store.
    sys.run();
  }

  caf::actor object(storage::epoch lease = 1, std::string prefix = {},
                    kept_in where = kept_in::cluster, std::string owner = "abc") {
    made.push_back(
      sys.get().spawn(counter, keep, lease, std::move(owner), std::move(prefix), where));
    sys.run();
    return made.back();
  }
  auto add(const caf::actor& to, std::int64_t more) {
    return sys.ask<std::int64_t>(to, add_atom::value, more);
  }
  auto ok(const caf::actor& to, auto... what) { return sys.ask<caf::ok_atom>(to, what...); }
  std::int64_t seen(const caf::actor& by) {
    return sys.ask<std::int64_t>(by, get_atom::value).value();
  }
};

} // namespace

TEST_CASE("an object remembers what it has said, and nothing is looked at before it does",
          "[actors][object][gate]") {
  small_world w;
  CHECK(w.add(w.object(), 5).value() == 5);
  w.cluster.hold_reads = true;
  const auto next = w.object(2);
  const auto asked = w.add(next, 1);
  CHECK(asked.open()); // Not 1: it does not know yet that there are five.
  w.cluster.let_go();
  w.sys.run();
  CHECK(asked.value() == 6);
}

TEST_CASE(
  "an answer leaves when the state it tells of is durable, and what was written can be read "
  "before",
  "[actors][object][gate]") {
  small_world w;
  const auto it = w.object();
  w.cluster.hold_writes = true;
  const auto first = w.add(it, 1);
  const auto second = w.add(it, 1);
  const auto third = w.add(it, 1);
  CHECK(first.open());
  CHECK(third.open());
  CHECK(w.seen(it) == 3);
  CHECK(w.cluster.writes == 1); // The others wait for it, together.
  w.cluster.let_go();
  w.sys.run();
  CHECK(first.value() == 1);
  CHECK(second.value() == 2);
  CHECK(third.value() == 3);
  CHECK(w.cluster.writes == 2);
  CHECK(w.cluster.value("abc", "count") == "3");
}

TEST_CASE(
  "a write that is refused takes back what was built on it, and the next one is a fresh try",
  "[actors][object][gate]") {
  small_world w;
  const auto it = w.object();
  CHECK(w.add(it, 1).value() == 1);
  w.cluster.hold_writes = true;
  w.cluster.held_error = error{errc::disk_full, "no room"};
  const auto first = w.add(it, 10);
  const auto second = w.add(it, 100);
  const auto cleared = w.ok(it, clear_atom::value, std::string{"seen/"});
  CHECK(w.seen(it) == 111);
  w.cluster.let_go();
  w.sys.run();
  CHECK(first.reason().code == errc::disk_full);
  CHECK(second.reason().code == errc::disk_full);
  CHECK(cleared.reason().code == errc::disk_full);
  CHECK(w.seen(it) == 1);
  w.cluster.held_error.reset();
  CHECK(w.add(it, 1).value() == 2);
  CHECK(w.cluster.disk.read("abc", "seen/")->size() == 2);
}

TEST_CASE("who was the object before can write no more", "[actors][object][gate]") {
  small_world w;
  const auto before = w.object(1);
  const auto after = w.object(2);
  CHECK(w.add(after, 5).value() == 5);
  CHECK(w.add(before, 1).reason().code == errc::stale_epoch);
  CHECK(w.cluster.value("abc", "count") == "5");
}

TEST_CASE("objects inside of an owner have keys of their own and go with it", "[actors][object]") {
  small_world w;
  const auto owner = w.object();
  const auto one = w.object(1, "session/one/");
  const auto other = w.object(1, "session/other/");
  CHECK(w.add(owner, 1).value() == 1);
  CHECK(w.add(one, 10).value() == 10);
  CHECK(w.add(other, 100).value() == 100);
  CHECK(w.cluster.value("abc", "session/one/count") == "10");
  SECTION("one by one") {
    w.ok(owner, clear_atom::value, std::string{"session/one/"}).value();
    CHECK(w.cluster.disk.read("abc", "session/one/")->empty());
    CHECK(w.cluster.disk.read("abc", "session/other/")->size() == 2);
    CHECK(w.seen(w.object(1, "session/other/")) == 100);
  }
  SECTION("all with the owner, in one batch, and none comes back") {
    const auto before = w.cluster.writes;
    w.ok(owner, destroy_atom::value).value();
    CHECK(w.cluster.writes == before + 1);
    CHECK(w.cluster.disk.owners()->empty());
    CHECK(w.add(one, 1).reason().code == errc::stale_epoch);
    CHECK(w.cluster.disk.owners()->empty());
    CHECK(w.add(w.object(2), 7).value() == 7); // The next lease's.
  }
}

TEST_CASE("what an object keeps with its node is in another store", "[actors][object]") {
  small_world w;
  const auto process = w.object(1, "process/1/", kept_in::node);
  CHECK(w.add(process, 3).value() == 3);
  CHECK(w.cluster.writes == 0);
  CHECK(w.node.value("abc", "process/1/count") == "3");
}

TEST_CASE("a deletion does not wait for a write that fails", "[actors][object][gate]") {
  small_world w;
  const auto it = w.object();
  CHECK(w.add(it, 1).value() == 1);
  w.cluster.hold_writes = true;
  w.cluster.held_error = error{errc::disk_full, "no room"};
  const auto late = w.add(it, 1);
  w.cluster.held_error.reset();
  const auto gone = w.ok(it, destroy_atom::value);
  CHECK(late.reason().code == errc::sandbox_not_running);
  w.cluster.let_go();
  w.sys.run();
  CHECK_NOTHROW(gone.value());
  CHECK(w.cluster.disk.owners()->empty());
}

TEST_CASE("what is written to an object that is deleted is nothing, until it has a new lease",
          "[actors][object][gate]") {
  small_world w;
  const auto it = w.object();
  CHECK(w.add(it, 1).value() == 1);
  w.cluster.hold_writes = true;
  const auto gone = w.ok(it, destroy_atom::value);
  CHECK(gone.open());
  CHECK(w.add(it, 1).reason().code == errc::sandbox_not_running);
  CHECK(w.ok(it, set_atom::value, std::int64_t{1000}).reason().code == errc::sandbox_not_running);
  CHECK(w.ok(it, cancel_atom::value).reason().message == "it is being deleted");
  w.cluster.let_go();
  w.sys.run();
  CHECK_NOTHROW(gone.value());
  CHECK(w.add(it, 1).reason().code == errc::sandbox_not_running);
  CHECK(w.cluster.disk.owners()->empty());
  caf::anon_send(it, renew_atom::value, storage::epoch{2});
  w.sys.run();
  CHECK(w.add(it, 7).value() == 7);
}

TEST_CASE("an object that is loaded twice at once keeps what was written in between",
          "[actors][object][gate]") {
  small_world w;
  const std::string prefix = GENERATE("", "session/one/");
  w.cluster.hold_reads = true;
  const auto keep = w.keep;
  int loads = 0;
  std::string seen;
  w.made.push_back(w.sys.get().spawn([&](caf::stateful_actor<counter_state>* self) {
    auto& kept = self->state.kept;
    kept.emplace(self, keep, kept_in::cluster, "abc", prefix);
    kept->write_at(1);
    const auto loaded = [&, self] {
      if (++loads == 1)
        self->state.kept->write({{"count", "1"}});
      seen = self->state.kept->value("count");
    };
    for (int i = 0; i < 2; ++i)
      kept->load(loaded, [](const error&) {});
    return caf::behavior{[](get_atom) {}};
  }));
  w.sys.run();
  while (!w.cluster.held.empty()) {
    w.cluster.let_go();
    w.sys.run();
  }
  CHECK(loads == 2);
  CHECK(seen == "1");
}

TEST_CASE("what waits for a disk that stands still has a ceiling, and is refused as a whole",
          "[actors][object]") {
  small_world w;
  const auto it = w.object();
  w.cluster.hold_writes = true;
  std::vector<pending<caf::ok_atom>> asked;
  const std::string large(limits::object_pending_bytes / 8, 'v');
  for (int i = 0; i < 12; ++i)
    asked.push_back(w.ok(it, add_atom::value, std::to_string(i), large));
  w.cluster.let_go();
  w.sys.run();
  std::size_t refused = 0;
  for (const auto& each : asked) {
    REQUIRE_FALSE(each.open());
    refused += *each.answer && **each.answer ? 0 : 1;
  }
  CHECK(refused > 0);
  CHECK(refused < 12);
  CHECK(w.cluster.disk.read("abc")->size() == 12 - refused);
  CHECK_NOTHROW(w.ok(it, add_atom::value, std::string{"after"}, std::string{"all"}).value());
}

TEST_CASE("who waits for an answer when the object ends is told", "[actors][object]") {
  small_world w;
  const auto it = w.object();
  w.cluster.hold_writes = true;
  const auto asked = w.add(it, 1);
  caf::anon_send_exit(it, caf::exit_reason::user_shutdown);
  w.sys.run();
  CHECK(asked.reason().code == errc::sandbox_not_running);
  w.cluster.let_go();
}

TEST_CASE("an object behaves like a map whose every answer is kept, whatever the disk does",
          "[actors][object][property]") {
  const auto seed = GENERATE(take(30, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  small_world w;
  auto it = w.object(1);
  storage::epoch lease = 1;
  std::int64_t acknowledged = 0;
  std::vector<pending<std::int64_t>> open;
  for (int step = 0; step < 80; ++step) {
    switch (rng() % 6) {
      case 0:
      case 1: open.push_back(w.add(it, 1 + rng() % 3)); break;
      case 2:
        w.cluster.hold_writes = true;
        w.cluster.held_error =
          rng() % 3 == 0 ? std::optional{error{errc::store_failed, "no"}} : std::nullopt;
        break;
      case 3:
      case 4:
        w.cluster.held_error.reset();
        w.cluster.let_go();
        w.sys.run();
        break;
      case 5: // It hibernates or is lost, and comes again.
        w.cluster.held_error.reset();
        w.cluster.let_go();
        w.sys.run();
        caf::anon_send_exit(it, caf::exit_reason::user_shutdown);
        w.sys.run();
        it = w.object(++lease);
        REQUIRE(w.seen(it) >= acknowledged);
        break;
    }
    const auto text = w.cluster.value("abc", "count");
    const auto kept = text.empty() ? 0 : std::stoll(text);
    for (const auto& each : open)
      if (!each.open() && **each.answer) {
        REQUIRE(each.value() <= kept); // Counters only grow, so a kept one has all before it.
        acknowledged = std::max(acknowledged, each.value());
      }
    std::erase_if(open, [](const auto& each) { return !each.open(); });
  }
}

TEST_CASE("after a write that may have been made, the next one is of what the record has",
          "[actors][object][gate]") {
  small_world w;
  const error unknown{errc::node_unreachable, "etcd has not answered"};
  for (const std::string prefix : {"", "part/"}) {
    const auto it = w.object(1, prefix, kept_in::cluster, "of" + prefix.substr(0, 4));
    CHECK(w.add(it, 5).value() == 5);
    w.ok(it, set_atom::value, std::int64_t{1'000}).value();
    w.cluster.told_error = unknown;
    CHECK(w.add(it, 2).reason().code == errc::node_unreachable);
    CHECK(w.seen(it) == 5); // It has not come to be, as far as is known.

    INFO("what is asked for meanwhile waits for that, and keeps its order");
    w.cluster.hold_reads = true;
    const auto first = w.ok(it, add_atom::value, std::string{"key"}, std::string{"one"});
    const auto second = w.ok(it, add_atom::value, std::string{"key"}, std::string{"two"});
    CHECK(first.open());
    w.cluster.let_go();
    w.sys.run();
    w.cluster.let_go(); // Its alarm is read by itself.
    w.sys.run();
    first.value();
    second.value();
    CHECK(w.cluster.value("of" + prefix.substr(0, 4), prefix + "key") == "two");
    CHECK(w.seen(it) == 7);
    CHECK(w.add(it, 1).value() == 8);
    w.ok(it, cancel_atom::value).value();

    INFO("a record that cannot be read refuses it, and the one after that reads again");
    w.cluster.told_error = unknown;
    CHECK(w.add(it, 2).reason().code == errc::node_unreachable);
    w.cluster.read_error = unknown;
    CHECK(w.add(it, 1).reason().code == errc::node_unreachable);
    w.cluster.read_error.reset();
    w.ok(it, add_atom::value, std::string{"key"}, std::string{"three"}).value();
    CHECK(w.seen(it) == 10);
    w.cluster.told_error = error{errc::disk_full, "no room"}; // Which leaves nothing open.
    CHECK(w.add(it, 2).reason().code == errc::disk_full);
    CHECK(w.add(it, 1).value() == 11);
  }
}

TEST_CASE("what was read before another node had it is compared before the first write",
          "[actors][object][gate]") {
  small_world w;
  for (const std::string prefix : {"", "part/"}) {
    const auto owner = "of" + prefix.substr(0, 4);
    const auto made = [&](storage::epoch lease) {
      return w.object(lease, prefix, kept_in::cluster, owner);
    };
    w.tenure = 1;
    const auto before = made(1);
    CHECK(w.add(before, 5).value() == 5);
    const auto early = made(9), same = made(4); // Both have read 5.

    INFO("nothing has changed: it goes on, with what comes meanwhile");
    w.tenure = 2;
    w.cluster.hold_reads = true;
    const auto first = w.add(same, 1), second = w.add(same, 1);
    CHECK(first.open());
    w.cluster.let_go();
    w.sys.run();
    w.cluster.let_go(); // The alarm of a part is read by itself.
    w.sys.run();
    CHECK(first.value() == 6);
    CHECK(second.value() == 7);

    INFO("another one has changed it: what was made of the old state is refused");
    CHECK(w.add(early, 1).reason().code == errc::stale_epoch);
    CHECK(w.add(early, 1).reason().code == errc::stale_epoch);
    if (prefix.empty())
      CHECK(w.ok(early, destroy_atom::value).reason().code == errc::stale_epoch);
    CHECK(w.cluster.value(owner, prefix + "count") == "7");

    INFO("the alarm counts as well");
    const auto quiet = made(10);
    w.ok(made(11), set_atom::value, std::int64_t{1'000}).value();
    w.tenure = 3;
    CHECK(w.add(quiet, 1).reason().code == errc::stale_epoch);

    INFO("a record that cannot be read refuses it, and leaves nothing open");
    const auto later = made(12);
    w.tenure = 4;
    w.cluster.read_error = error{errc::node_unreachable, "etcd has not answered"};
    CHECK(w.add(later, 1).reason().code == errc::node_unreachable);
    w.cluster.read_error.reset();
    CHECK(w.add(later, 1).value() == 8);

    INFO("without an ownership the store says so, and nothing is read");
    w.tenure = 0;
    w.cluster.read_error = error{errc::node_unreachable, "etcd has not answered"};
    w.cluster.told_error = error{errc::stale_epoch, "it is not this node's any more"};
    CHECK(w.add(later, 1).reason().code == errc::stale_epoch);
    w.cluster.read_error.reset();
  }
}

TEST_CASE("an object that was made anew has nothing of the one before, and is not deleted with it",
          "[actors][object][gate]") {
  small_world w;
  w.tenure = 1;
  const auto old = w.object(20);
  const auto first = w.object(1);
  CHECK(w.add(first, 5).value() == 5);
  const auto late = w.object(21);
  w.ok(first, destroy_atom::value).value();
  w.tenure = 2;
  const auto anew = w.object(3);
  CHECK(w.add(anew, 2).value() == 2);
  CHECK(w.add(late, 1).reason().code == errc::stale_epoch);
  CHECK(w.ok(late, destroy_atom::value).reason().code == errc::stale_epoch);
  CHECK(w.ok(old, destroy_atom::value).reason().code == errc::stale_epoch);
  CHECK(w.cluster.value("abc", "count") == "2");
  CHECK(w.add(anew, 1).value() == 3);
}

TEST_CASE("what was read before there was an ownership is read anew", "[actors][object][gate]") {
  small_world w;
  CHECK(w.add(w.object(1), 5).value() == 5);
  const auto taken_over = w.object(9);
  CHECK(w.add(w.object(4), 1).value() == 6); // By the server before, and late.
  w.tenure = 1;
  w.ok(taken_over, add_atom::value, std::string{"key"}, std::string{"one"}).value();
  CHECK(w.seen(taken_over) == 6);
  CHECK(w.cluster.value("abc", "key") == "one");
}

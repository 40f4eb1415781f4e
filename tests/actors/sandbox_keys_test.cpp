// Sandboxes that named API keys have made, and the ceilings of these.
#include "tests/actors/fixture.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// What sandboxes have of it they give back when their node ends.
struct outliving_places {
  std::function<std::int64_t()> now_us;
  storage::key_places places{[this] { return now_us(); }};
};

struct node_with_keys : outliving_places, small_node {
  explicit node_with_keys(storage::key_ceilings most = {1, 0, 0}) {
    now_us = [this] { return 1'000 * sys.time.unix_ms(); };
    places.set_ceilings({{"ci", most}});
    options->key_places = &places;
    options->limits.cpu_percent = 200;
  }

  static request_context by(std::string key) {
    request_context context;
    context.key = std::move(key);
    return context;
  }
  pending<caf::ok_atom> find(const sandbox_object_actor& which, const std::string& key = "ci") {
    return sys.ask<caf::ok_atom>(which, find_atom::value, by(key));
  }
  pending<caf::ok_atom> remove(const sandbox_object_actor& which) {
    return sys.ask<caf::ok_atom>(which, delete_atom::value, request_context{});
  }
  unsigned count() const { return places.counts().at("ci"); }
};

} // namespace

TEST_CASE("a sandbox counts for the key that has made it, whoever starts it again",
          "[actors][keys]") {
  node_with_keys node;
  const auto one = node.make_sandbox("abc"), two = node.make_sandbox("abd");
  CHECK_NOTHROW(node.find(one).value());
  CHECK(node.store.value("abc", "made_by") == "ci");
  CHECK(node.count() == 1);
  const auto full = node.find(two);
  CHECK(full.reason().code == errc::key_ceiling);
  CHECK(node.engine.creations.size() == 1);
  CHECK(node.store.value("abd", "created_ms").empty()); // Nothing is left of it.
  CHECK(node.leases.held.count("abd") == 0);
  CHECK_NOTHROW(node.find(two, "").value()); // The main key's counts for nobody,
  CHECK(node.store.value("abd", "made_by").empty());
  CHECK(node.count() == 1);
  CHECK_NOTHROW(node.find(two).value()); // and stays that.
  CHECK_NOTHROW(node.remove(one).value());
  CHECK(node.count() == 0);
  CHECK_NOTHROW(node.find(node.make_sandbox("abe")).value());
}

TEST_CASE("what stops for being idle gives its place back, and needs one to go on",
          "[actors][keys]") {
  node_with_keys node;
  const auto one = node.make_sandbox("abc"), two = node.make_sandbox("abd");
  CHECK_NOTHROW(node.find(one).value());
  node.sys.advance(11min);
  CHECK(node.count() == 0);
  CHECK_NOTHROW(node.find(two).value());
  CHECK(node.find(one, "").reason().code == errc::key_ceiling); // Also for the main key.
  CHECK_NOTHROW(node.remove(two).value());
  CHECK_NOTHROW(node.find(one, "").value());
  CHECK(node.count() == 1);
}

TEST_CASE("a start that fails gives its place back", "[actors][keys]") {
  node_with_keys node;
  node.engine.ready_at_once = false;
  const auto one = node.make_sandbox("abc");
  const auto asked = node.find(one);
  CHECK(node.count() == 1);
  SECTION("by the engine") {
    node.engine.creations[0].fail("no");
    node.sys.run();
    CHECK(asked.reason().code == errc::launch_failed);
  }
  SECTION("by its own end") {
    node.engine.creations[0].ready();
    node.sys.run();
    CHECK_NOTHROW(asked.value());
    CHECK(node.count() == 1);
    node.engine.creations[0].end();
    node.sys.run();
  }
  SECTION("by a delete while it starts") {
    const auto removed = node.remove(one);
    CHECK(node.count() == 1); // Until it is gone.
    node.engine.creations[0].ready();
    node.sys.run();
    CHECK_NOTHROW(removed.value());
  }
  SECTION("for want of a record: it counts until it is gone") {
    node.engine.creations[0].ready();
    node.sys.run();
    const auto two = node.make_sandbox("abd");
    CHECK_NOTHROW(node.remove(one).value());
    node.store.write_error = error{errc::disk_full, "no room"};
    const auto refused = node.find(two);
    CHECK(refused.reason().code == errc::disk_full);
    CHECK(node.count() == 1);
    node.engine.creations[1].ready();
    node.sys.run();
  }
  CHECK(node.count() == 0);
}

TEST_CASE("processors of a key are those of its sandboxes' limits", "[actors][keys]") {
  node_with_keys node{{0, 300, 0}};
  CHECK_NOTHROW(node.find(node.make_sandbox("abc")).value());
  const auto two = node.make_sandbox("abd");
  CHECK(node.find(two).reason().code == errc::key_ceiling);
  define_sandbox smaller;
  smaller.cpu_percent = 100;
  smaller.context = node_with_keys::by("ci");
  CHECK_NOTHROW(node.sys.ask<sandbox_description>(two, smaller).value());
  CHECK(node.store.value("abd", "made_by") == "ci"); // From its definition on.
  CHECK_NOTHROW(node.find(two, "").value());
  CHECK(node.find(node.make_sandbox("abe")).reason().code == errc::key_ceiling);
}

TEST_CASE("only the first start of a sandbox is a create", "[actors][keys]") {
  node_with_keys node{{0, 0, 2}};
  const auto one = node.make_sandbox("abc");
  CHECK_NOTHROW(node.find(one).value());
  CHECK_NOTHROW(node.find(node.make_sandbox("abd")).value());
  const auto third = node.make_sandbox("abe");
  const auto refused = node.find(third);
  CHECK(refused.reason().code == errc::key_ceiling);
  CHECK(refused.reason().retry_s == 30);
  node.engine.creations[0].end();
  node.sys.run();
  CHECK_NOTHROW(node.find(one).value()); // It goes on.
  node.sys.advance(30s);
  CHECK_NOTHROW(node.find(third).value());
}

TEST_CASE("what an earlier server has left counts before anything new is begun", "[actors][keys]") {
  node_with_keys node;
  node.options->survivors_until = node.sys.time.now() + 10s;
  node.store.disk.commit(
    {"abc", 1,
     with_line({{"created_ms", "5"}, {"started_ms", "6"}, {"image", "host"}, {"made_by", "ci"}})},
    [](result<void>) {});
  node.leases.last = 1;
  node.engine.left["abc"] = std::make_shared<fake_sandbox>();
  const auto two = node.make_sandbox("abd");
  const auto early = node.find(two);
  CHECK(early.open()); // Nobody has counted it yet.
  caf::anon_send(node.make_sandbox("abc"), adopt_atom::value);
  node.sys.run();
  CHECK(node.engine.adoptions.size() == 1);
  CHECK(node.count() == 1);
  node.sys.advance(20ms);
  CHECK(early.reason().code == errc::key_ceiling);
  // One that cannot be taken over holds nobody up for ever.
  node.engine.left["abe"] = std::make_shared<fake_sandbox>();
  node.places.set_ceilings({{"ci", {2, 0, 0}}});
  const auto late = node.find(two);
  CHECK(late.open());
  for (int i = 0; i < 500 && late.open(); ++i)
    node.sys.advance(20ms);
  CHECK_NOTHROW(late.value());
  node.places.set_ceilings({{"ci", {3, 0, 0}}});
  CHECK_NOTHROW(node.find(node.make_sandbox("abf")).value()); // Nor anybody after that.
}

namespace {

struct played_ledger final : storage::key_ledger {
  void reserve(storage::place_wish, storage::key_ceilings, std::string,
               std::function<void(result<void>)> then) override {
    asked.push_back(std::move(then));
  }
  void put(storage::place_wish what, std::string) override { there.insert(what.sandbox); }
  void drop(storage::place_wish what, std::string) override { dropped.insert(what.sandbox); }
  void answer(result<void> how) { std::exchange(asked[0], nullptr)(std::move(how)); }

  std::vector<std::function<void(result<void>)>> asked;
  std::set<std::string> there, dropped;
};

} // namespace

TEST_CASE("the answer of the other nodes is waited for, and comes too late for what has gone",
          "[actors][keys]") {
  played_ledger ledger;
  node_with_keys node;
  node.places.share(&ledger);
  // What is left of an earlier server has its places in etcd: nothing waits for it.
  node.options->survivors_until = node.sys.time.now() + 10s;
  node.engine.left["abe"] = std::make_shared<fake_sandbox>();
  const auto one = node.make_sandbox("abc");
  const auto asked = node.find(one);
  REQUIRE(ledger.asked.size() == 1);
  CHECK(asked.open());
  CHECK(node.engine.creations.empty());
  SECTION("it may start") {
    ledger.answer({});
    node.sys.run();
    CHECK_NOTHROW(asked.value());
    CHECK(ledger.dropped.empty());
  }
  SECTION("it may not") {
    ledger.answer(error{errc::key_ceiling, "full", 3});
    node.sys.run();
    CHECK(asked.reason().code == errc::key_ceiling);
    CHECK(asked.reason().retry_s == 3);
    CHECK(ledger.dropped.empty());
  }
  SECTION("nobody can be asked") {
    ledger.answer(error{errc::node_unreachable, "no etcd"});
    node.sys.run();
    CHECK(asked.reason().code == errc::node_unreachable);
  }
  SECTION("it is deleted meanwhile") {
    const auto removed = node.remove(one);
    CHECK(removed.open());
    ledger.answer({});
    node.sys.run();
    CHECK_NOTHROW(removed.value());
    CHECK(ledger.dropped == std::set<std::string>{"abc"});
    CHECK(node.engine.creations.empty());
  }
  node.places.share(nullptr);
}

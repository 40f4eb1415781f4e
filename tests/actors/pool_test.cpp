// Section 12 of the bridge's contract: the pool of warm sandboxes, with an engine and a clock that
// the test plays.
#include "actors/pool.hpp"
#include "base/limits.hpp"
#include "tests/actors/fixture.hpp"
#include "tests/support/metrics_text.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

constexpr pool_settings three{3, 10s, 2};

/// A node with a pool of the image that new sandboxes have.
struct pooled_node : small_node {
  explicit pooled_node(const pool_settings& settings = three, unsigned limit = 10) {
    options->instances = std::make_shared<actors::instance_count>(limit);
    actors::pool_options with;
    with.engine = &engine;
    with.instances = options->instances;
    with.spec = {"warm", {"host", true}, {}};
    with.figures = options->figures;
    options->pool = pool = actors::spawn_pool(sys.get(), with);
    sys.run();
    prime(settings);
  }
  ~pooled_node() {
    options->pool = node_pool_actor{};
    caf::anon_send_exit(pool, caf::exit_reason::user_shutdown);
    sys.run();
  }

  void prime(const pool_settings& settings) {
    sys.ask<caf::ok_atom>(pool, prime_pool{settings}).value();
  }
  pool_stats stats() { return sys.ask<pool_stats>(pool, status_atom::value).value(); }
  pending<caf::ok_atom> find(const sandbox_object_actor& box) {
    return sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  }
  /// What follows a claim at once.
  void refill() { sys.advance(limits::refill_pause); }
  double counted(const char* what) {
    metrics::text text;
    options->figures->write(text);
    return metrics_page{text.str()}.value(what);
  }
  bool claimed(std::size_t which) const {
    return engine.creations[which].place->identity.has_value();
  }

  node_pool_actor pool;
};

} // namespace

// ---- 12.1, 12.2: settings and figures

TEST_CASE("12.2 stats: warm, assigned, what it was told, and the node's limit", "[actors][pool]") {
  pooled_node node;
  const auto box = node.make_sandbox();
  node.find(box).value();
  const auto now = node.stats(); // Before the claimed one has been replaced.
  CHECK(now.warm == 2);
  CHECK(now.assigned == 1);
  CHECK(now.limit == 10);
  CHECK(now.settings.target == 3);
  CHECK(now.settings.refresh_interval == 10s);
  CHECK(now.settings.scale_batch_size == 2);
}

TEST_CASE("12.2 stats: what starts counts as neither", "[actors][pool]") {
  pooled_node node{{0, 10s, 5}};
  node.engine.ready_at_once = false;
  node.prime(three);
  const auto box = node.make_sandbox();
  const auto asked = node.find(box);
  CHECK(node.engine.creations.size() == 3); // Two of the pool's, and one for who cannot wait.
  CHECK(node.stats().warm == 0);
  CHECK(node.stats().assigned == 0);
  node.engine.creations.back().ready();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
  CHECK(node.stats().assigned == 1);
}

TEST_CASE("12.2 stats: reading them begins the rounds", "[actors][pool]") {
  pooled_node node{{1, 10s, 5}};
  node.engine.creations[0].end();
  node.sys.run();
  CHECK(node.stats().warm == 0);
  node.sys.advance(10s);
  CHECK(node.stats().warm == 1);
}

TEST_CASE("12.3 prime: it waits for nothing, and repeating it is harmless", "[actors][pool]") {
  pooled_node node{{0, 10s, 5}};
  node.engine.ready_at_once = false;
  for (int i = 0; i < 3; ++i)
    node.prime(three);
  CHECK(node.engine.creations.size() == 2); // One batch.
  for (int i = 0; i < 3; ++i)
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(node.pool, prime_pool{}).value());
  CHECK(node.engine.creations.size() == 2);
}

TEST_CASE("without a target nothing is started, and nothing looks at the clock", "[actors][pool]") {
  pooled_node node{{0, 10s, 5}};
  node.sys.advance(1h);
  CHECK(node.engine.creations.empty());
  CHECK(node.stats().warm == 0);
}

// ---- 12.3: shutdown-prewarmed

TEST_CASE("12.3 shutdown-prewarmed: ends what is warm and waits for that, and nothing else",
          "[actors][pool]") {
  pooled_node node{{2, 10s, 5}};
  const auto box = node.make_sandbox();
  node.find(box).value();
  node.refill();
  CHECK(node.stats().warm == 2);
  node.engine.creations[1].place->hold_destroy = true;
  const auto asked = node.sys.ask<caf::ok_atom>(node.pool, empty_atom::value);
  CHECK(asked.open());
  CHECK(node.stats().warm == 0);
  node.engine.creations[1].place->finish_destroy();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
  CHECK(node.engine.creations[0].place->destroys == 0); // Somebody's.
  CHECK(node.engine.creations[2].place->destroys == 1);
  CHECK(node.stats().assigned == 1);
  CHECK(node.engine.creations.size() == 3);
  node.sys.advance(10s); // The next round fills it again.
  CHECK(node.stats().warm == 2);
}

TEST_CASE(
  "12.3 shutdown-prewarmed: one that does not end is waited for so long, and goes to nobody",
  "[actors][pool]") {
  pooled_node node{{1, 1h, 5}, 1};
  node.engine.creations[0].place->hold_destroy = true;
  const auto asked = node.sys.ask<caf::ok_atom>(node.pool, empty_atom::value);
  node.sys.advance(limits::destroy_patience);
  CHECK_NOTHROW(asked.value());
  CHECK(node.stats().warm == 0);
  const auto box = node.make_sandbox();
  CHECK(node.find(box).reason().message == "1/1"); // It still counts.
  node.engine.creations[0].place->finish_destroy();
  node.sys.run();
  CHECK_NOTHROW(node.find(box).value());
}

TEST_CASE("12.3 shutdown-prewarmed: what is starting meanwhile starts no more of them",
          "[actors][pool]") {
  pooled_node node{{0, 10s, 5}};
  node.engine.ready_at_once = false;
  node.prime({4, 10s, 2});
  node.sys.ask<caf::ok_atom>(node.pool, empty_atom::value).value();
  node.engine.creations[0].ready();
  node.engine.creations[1].ready();
  node.sys.run();
  CHECK(node.engine.creations.size() == 2);
}

// ---- 12.4: finding one for an id

TEST_CASE("12.4 the oldest warm one is claimed, with name and limits, and becomes nobody else's",
          "[actors][pool]") {
  pooled_node node;
  node.options->limits.memory_bytes = 123;
  const auto first = node.make_sandbox("first"), second = node.make_sandbox("second");
  node.find(first).value();
  REQUIRE(node.claimed(0));
  CHECK(node.engine.creations[0].place->identity->host_name == "first");
  CHECK(node.engine.creations[0].place->identity->limits.memory_bytes == 123);
  CHECK_FALSE(node.claimed(1));
  node.find(second).value();
  CHECK(node.engine.creations[1].place->identity->host_name == "second");
  CHECK(node.engine.creations.size() == 3); // Nobody has had to wait for one.
  CHECK(node.counted("insula_pool_claims_total") == 2);
  CHECK(node.counted("insula_pool_cold_starts_total") == 0);
}

TEST_CASE("a claimed sandbox is like any other: commands, environment, end", "[actors][pool]") {
  pooled_node node{{1, 10s, 5}};
  const auto box = node.make_sandbox();
  auto wanted = command("echo hi");
  wanted.env = {{"A", "1"}};
  const auto ran = node.sys.ask<process_actor>(box, wanted);
  auto& place = *node.engine.creations[0].place;
  REQUIRE(place.processes.size() == 1);
  CHECK(place.processes[0]->spec.env ==
        std::vector<std::string>{"A=1", "HOME=/home/sandbox", "PATH=/usr/bin:/bin"});
  place.processes[0]->start();
  node.sys.run();
  CHECK_NOTHROW(ran.value());
  place.processes[0]->exit(0);
  place.processes[0]->complete_now();
  node.refill();
  CHECK(node.stats().warm == 1);
  node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value();
  CHECK(place.destroys == 1); // It never goes back.
  CHECK(node.stats().warm == 1);
  CHECK(node.stats().assigned == 0);
}

TEST_CASE("12.4 when its owner's sandbox ends by itself, the next use gets another one",
          "[actors][pool]") {
  pooled_node node;
  const auto box = node.make_sandbox();
  node.find(box).value();
  CHECK(node.stats().assigned == 1);
  node.engine.creations[0].end();
  node.sys.run();
  CHECK(node.stats().assigned == 0);
  node.find(box).value();
  CHECK(node.claimed(1));
}

TEST_CASE("12.4 a claim is followed by a refill at once, one at a time, up to the target",
          "[actors][pool]") {
  pooled_node node{{2, 1h, 1}};
  CHECK(node.stats().warm == 2);
  node.engine.ready_at_once = false;
  const auto one = node.make_sandbox("aa"), two = node.make_sandbox("bb");
  node.find(one).value();
  node.find(two).value();
  node.refill();
  CHECK(node.engine.creations.size() == 3);
  node.sys.advance(1s);
  CHECK(node.engine.creations.size() == 3); // One batch, of one.
  node.engine.creations[2].ready();
  node.sys.run();
  REQUIRE(node.engine.creations.size() == 4);
  node.engine.creations[3].ready();
  node.sys.run();
  CHECK(node.engine.creations.size() == 4);
  CHECK(node.stats().warm == 2);
}

TEST_CASE("12.4 without a warm one the sandbox starts from nothing, and the pool is refilled",
          "[actors][pool]") {
  pooled_node node{{1, 1h, 5}};
  const auto one = node.make_sandbox("aa"), two = node.make_sandbox("bb");
  node.find(one).value();
  node.find(two).value();
  CHECK(node.engine.creations.size() == 2);
  CHECK(node.engine.creations[1].spec.host_name == "bb");
  CHECK(node.counted("insula_pool_cold_starts_total") == 1);
  node.refill();
  CHECK(node.stats().warm == 1);
}

TEST_CASE("12.4 one start per id, and all who wait share it", "[actors][pool]") {
  pooled_node node{{2, 1h, 5}};
  node.engine.creations[0].place->hold_claim = true;
  const auto box = node.make_sandbox();
  std::vector<pending<caf::ok_atom>> asked;
  for (int i = 0; i < 15; ++i)
    asked.push_back(node.find(box));
  for (const auto& each : asked)
    CHECK(each.open());
  node.engine.creations[0].place->finish_claim();
  node.sys.run();
  for (const auto& each : asked)
    CHECK_NOTHROW(each.value());
  CHECK_FALSE(node.claimed(1));
}

TEST_CASE("12.4 a dead one is never handed out: the next is taken", "[actors][pool]") {
  pooled_node node;
  node.engine.creations[0].place->dead = true;
  const auto box = node.make_sandbox();
  node.find(box).value();
  CHECK(node.engine.creations[1].place->identity->host_name == "abc");
  CHECK(node.stats().assigned == 1);
  CHECK(node.counted("insula_pool_dead_slots_total") == 1);
  CHECK(node.options->instances->of(actors::instance::passing) == 0);
}

TEST_CASE("12.4 one that has ended leaves the pool at once", "[actors][pool]") {
  pooled_node node;
  node.engine.creations[0].end();
  node.sys.run();
  CHECK(node.stats().warm == 2);
  const auto box = node.make_sandbox();
  node.find(box).value();
  CHECK(node.claimed(1));
  CHECK(node.counted("insula_pool_dead_slots_total") == 1);
}

TEST_CASE("12.4 where all warm ones are dead, a new one is made in their place, also at the limit",
          "[actors][pool]") {
  pooled_node node{{2, 1h, 5}, 2};
  for (auto& each : node.engine.creations)
    each.place->dead = true;
  const auto box = node.make_sandbox();
  node.find(box).value();
  REQUIRE(node.engine.creations.size() == 3);
  CHECK(node.engine.creations[2].spec.host_name == "abc");
  CHECK(node.stats().assigned == 1);
}

TEST_CASE("12.4 at the limit what is warm is still given away; then it is refused",
          "[actors][pool]") {
  pooled_node node{{2, 10s, 5}, 2};
  const auto one = node.make_sandbox("aa"), two = node.make_sandbox("bb"),
             three_ = node.make_sandbox("cc");
  node.find(one).value();
  node.find(two).value();
  node.refill();
  CHECK(node.engine.creations.size() == 2); // There is no room for a refill.
  const auto refused = node.find(three_);
  CHECK(refused.reason().code == errc::capacity_exceeded);
  CHECK(refused.reason().message == "2/2");
  CHECK(node.store.value("cc", "image").empty()); // Nothing of it is remembered.
  node.sys.ask<caf::ok_atom>(one, delete_atom::value, request_context{}).value();
  CHECK_NOTHROW(node.find(three_).value());
}

TEST_CASE("12.4 where the engine has no more room, that is told as the limit", "[actors][pool]") {
  pooled_node node{{0, 10s, 5}};
  node.engine.ready_at_once = false;
  const auto box = node.make_sandbox();
  const auto asked = node.find(box);
  node.engine.creations[0].fail("every range of user ids is in use", errc::capacity_exceeded);
  node.sys.run();
  CHECK(asked.reason().code == errc::capacity_exceeded);
  CHECK(asked.reason().message == "1/10");
}

TEST_CASE("only what was made for the same image and engine is claimed", "[actors][pool]") {
  pooled_node node;
  node.options->images->put("other", {{".tree-3", false}, {}, "/bin/bash"});
  const auto made = node.engine.creations.size();
  SECTION("image") {
    node.options->image_name = "other";
  }
  SECTION("engine") {
    node.options->engine_name = "other";
  }
  const auto box = node.make_sandbox();
  node.find(box).value();
  CHECK(node.engine.creations.size() == made + 1);
  CHECK(node.stats().warm == 3);
}

TEST_CASE("a delete that overtakes a claim leaves nothing", "[actors][pool]") {
  pooled_node node{{1, 1h, 5}};
  auto& place = *node.engine.creations[0].place;
  place.hold_claim = true;
  const auto box = node.make_sandbox();
  const auto asked = node.find(box);
  const auto gone = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  CHECK_FALSE(asked.open());
  SECTION("it lives") {}
  SECTION("it is dead") {
    place.dead = true;
  }
  const bool lives = !place.dead;
  place.finish_claim();
  node.sys.run();
  CHECK_NOTHROW(gone.value());
  CHECK(place.destroys == (lives ? 1 : 0)); // The engine removes a dead one by itself.
  CHECK(node.options->instances->of(actors::instance::assigned) == 0);
  CHECK(node.options->instances->of(actors::instance::passing) == 0);
}

TEST_CASE("what is claimed and not taken is removed", "[actors][pool]") {
  pooled_node node{{1, 1h, 5}};
  {
    const auto got = node.sys.ask<claim_answer>(node.pool, claim_slot{}).value();
    REQUIRE(got.slot);
    *got.slot; // Nobody takes it.
  }
  node.sys.run();
  CHECK(node.engine.creations[0].place->destroys == 1);
  CHECK(node.options->instances->of(actors::instance::warm) == 0);
}

TEST_CASE("a lease that is refused does not cost the claimed one its life unnoticed",
          "[actors][pool]") {
  pooled_node node{{1, 1h, 5}};
  node.leases.refusal = error{errc::io_failed, "no"};
  const auto box = node.make_sandbox();
  CHECK(node.find(box).reason().code == errc::io_failed);
  CHECK(node.engine.creations[0].place->destroys == 1);
  CHECK(node.options->instances->of(actors::instance::passing) == 0);
  node.leases.refusal.reset();
  CHECK_NOTHROW(node.find(box).value());
}

TEST_CASE("a warm start tells how long its claim took, and nothing of how it was made",
          "[actors][pool]") {
  pooled_node node{{1, 1h, 5}};
  const auto times = std::make_shared<request_times>(request_times::clock::now());
  const auto box = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{"r1", times}).value();
  CHECK(times->started_it());
  CHECK(times->took(start_phase::claim) >= 0ns);
  CHECK(times->took(start_phase::record) >= 0ns);
  CHECK(times->took(start_phase::cgroup) < 0ns);
  CHECK(node.counted("insula_sandboxes_started_total") == 1);
}

TEST_CASE(
  "what is claimed is commanded under the epoch of its new holder, and one that is late uses up "
  "no other",
  "[actors][pool]") {
  pooled_node node;
  node.leases.last = 6;
  auto& first = *node.engine.creations[0].place;
  first.hold_claim = true;
  const auto box = node.make_sandbox();
  const auto asked = node.find(box);
  REQUIRE(first.identity);
  CHECK(first.identity->epoch == 7);
  SECTION("it holds it") {
    first.finish_claim();
    node.sys.run();
    CHECK_NOTHROW(asked.value());
  }
  SECTION("it does not any more") {
    first.owner->on_failed({errc::stale_epoch, "it is held under a newer epoch"});
    node.sys.run();
    CHECK(asked.reason().code == errc::stale_epoch);
    CHECK_FALSE(node.claimed(1));
  }
}

// ---- 12.5: rounds

TEST_CASE("12.5 what is missing is started in batches", "[actors][pool]") {
  pooled_node node{{0, 10s, 5}};
  node.engine.ready_at_once = false;
  node.prime({5, 10s, 2});
  CHECK(node.engine.creations.size() == 2);
  node.engine.creations[0].ready();
  node.sys.run();
  CHECK(node.engine.creations.size() == 2); // Not before all of the batch.
  node.engine.creations[1].ready();
  node.sys.run();
  CHECK(node.engine.creations.size() == 4);
  node.engine.creations[2].ready();
  node.engine.creations[3].ready();
  node.sys.run();
  CHECK(node.engine.creations.size() == 5);
  node.engine.creations[4].ready();
  node.sys.run();
  CHECK(node.engine.creations.size() == 5);
  CHECK(node.stats().warm == 5);
}

TEST_CASE("12.5 the interval counts from the end of a round", "[actors][pool]") {
  pooled_node node{{0, 10s, 5}};
  node.engine.ready_at_once = false;
  node.prime({1, 10s, 5});
  node.sys.advance(25s); // The round is still about its first start.
  node.engine.creations[0].ready();
  node.sys.run();
  auto& place = *node.engine.creations[0].place;
  node.sys.advance(9s);
  CHECK(place.pings == 0);
  node.sys.advance(1s);
  CHECK(place.pings == 1);
  node.sys.advance(10s);
  CHECK(place.pings == 2);
}

TEST_CASE("12.5 a round that goes wrong is followed by the next", "[actors][pool]") {
  pooled_node node{{0, 10s, 5}};
  node.engine.ready_at_once = false;
  node.prime({3, 10s, 2});
  node.engine.creations[0].fail("no");
  node.sys.run();
  node.engine.creations[1].ready();
  node.sys.run();
  CHECK(node.engine.creations.size() == 2); // It gives up for now, and what has come is warm.
  CHECK(node.stats().warm == 1);
  node.sys.advance(10s);
  CHECK(node.engine.creations.size() == 4);
}

TEST_CASE("12.5 an engine without room is left alone until the next round", "[actors][pool]") {
  pooled_node node{{2, 10s, 1}};
  const auto box = node.make_sandbox();
  node.find(box).value();
  node.engine.ready_at_once = false;
  node.refill();
  node.engine.creations[2].fail("full", errc::capacity_exceeded);
  node.sys.run();
  const auto other = node.make_sandbox("other");
  node.find(other).value();
  node.sys.advance(1s);
  CHECK(node.engine.creations.size() == 3);
  node.sys.advance(9s);
  CHECK(node.engine.creations.size() == 4);
}

TEST_CASE("12.5 a slot whose agent hangs is found by the next round, and replaced",
          "[actors][pool]") {
  pooled_node node{{2, 10s, 5}};
  auto& hangs = *node.engine.creations[0].place;
  hangs.dead = true;
  node.sys.advance(10s);
  CHECK(node.stats().warm == 2); // It has its time to answer.
  node.sys.advance(limits::check_patience);
  CHECK(hangs.destroys == 1);
  CHECK(node.stats().warm == 2);
  CHECK(node.engine.creations.size() == 3);
  CHECK(node.counted("insula_pool_dead_slots_total") == 1);
  const auto box = node.make_sandbox();
  node.find(box).value();
  CHECK(node.claimed(1));
}

TEST_CASE("12.5 one that is claimed while it is checked is not missed", "[actors][pool]") {
  pooled_node node{{2, 10s, 5}};
  auto& slow = *node.engine.creations[0].place;
  slow.dead = true; // It will not answer the check,
  node.sys.advance(10s);
  slow.dead = false; // and lives when it is claimed.
  const auto box = node.make_sandbox();
  node.find(box).value();
  CHECK(node.claimed(0));
  node.sys.advance(limits::check_patience);
  CHECK(slow.destroys == 0);
  CHECK(node.stats().warm == 2);
  CHECK(node.stats().assigned == 1);
}

TEST_CASE("12.5 what is too much is ended, the oldest first", "[actors][pool]") {
  pooled_node node;
  node.prime({1, 10s, 5});
  CHECK(node.stats().warm == 1);
  CHECK(node.engine.creations[0].place->destroys == 1);
  CHECK(node.engine.creations[1].place->destroys == 1);
  CHECK(node.engine.creations[2].place->destroys == 0);
  node.prime({0, 10s, 5});
  CHECK(node.stats().warm == 0);
}

TEST_CASE("12.5 warm ones never become idle", "[actors][pool]") {
  pooled_node node{{1, 10s, 5}};
  node.sys.advance(48h);
  CHECK(node.stats().warm == 1);
  CHECK(node.engine.creations.size() == 1);
}

TEST_CASE("12.5 the pool never starts more than the limit leaves, not even to try",
          "[actors][pool]") {
  pooled_node node{{0, 10s, 5}, 3};
  const auto box = node.make_sandbox();
  node.find(box).value();
  node.prime({10, 10s, 5});
  CHECK(node.stats().warm == 2);
  CHECK(node.stats().assigned == 1);
  node.sys.advance(1min);
  CHECK(node.engine.creations.size() == 3);
  node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value();
  node.sys.advance(10s);
  CHECK(node.stats().warm == 3);
}

TEST_CASE("12.5 a delete takes the assignment back at once", "[actors][pool]") {
  pooled_node node{{1, 1h, 5}};
  const auto box = node.make_sandbox();
  node.find(box).value();
  node.engine.creations[0].place->hold_destroy = true;
  const auto gone = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  CHECK(gone.open());
  CHECK(node.stats().assigned == 0);
  node.engine.creations[0].place->finish_destroy();
  node.sys.run();
  CHECK_NOTHROW(gone.value());
}

TEST_CASE("when the pool goes, nobody waits for it in vain", "[actors][pool]") {
  pooled_node node{{1, 1h, 5}};
  node.engine.creations[0].place->hold_destroy = true;
  const auto asked = node.sys.ask<caf::ok_atom>(node.pool, empty_atom::value);
  caf::anon_send_exit(node.pool, caf::exit_reason::user_shutdown);
  node.sys.run();
  CHECK_FALSE(asked.open());
  const auto box = node.make_sandbox();
  CHECK_NOTHROW(node.find(box).value()); // Started from nothing.
}

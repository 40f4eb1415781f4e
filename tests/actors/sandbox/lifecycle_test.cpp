// The parts that start a sandbox, keep it, and end it, without an actor system.
#include "tests/actors/fake_snapshot_archive.hpp"
#include "tests/actors/sandbox/fake_core.hpp"
#include "tests/contract/drive_contract.hpp"
#include "tests/contract/snapshot_contract.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

TEST_CASE("the lease is asked for once, and all who wait get it", "[parts]") {
  fake_core core;
  actors::inside_sandbox::lease right{core};
  core.leases.hold = true;
  int got = 0;
  for (int i = 0; i < 2; ++i)
    right.acquire([&] { ++got; }, [](const error&) {});
  CHECK(right.asked_for());
  CHECK(core.leases.held_back.size() == 1);
  core.leases.let_go();
  core.run();
  CHECK(got == 2);
  CHECK(right.held());
  CHECK(core.cluster.epoch == right.epoch());
  CHECK(core.node.epoch == right.epoch());
  right.give_back();
  CHECK_FALSE(right.held());
  CHECK(core.leases.held.empty());
}

TEST_CASE("a lease that is closed is asked for no more", "[parts]") {
  fake_core core;
  actors::inside_sandbox::lease right{core};
  core.leases.hold = true;
  std::vector<errc> refused;
  const auto ask = [&] {
    right.acquire([] {}, [&](const error& why) { refused.push_back(why.code); });
  };
  ask();
  right.close(leaves_node);
  ask();
  CHECK(refused == std::vector{errc::node_unreachable, errc::node_unreachable});
}

TEST_CASE("the core's questions are those of all parts", "[parts]") {
  struct busy : part {
    using part::part;
    bool in_use() const override { return used; }
    bool may_hibernate() const override { return !used; }
    bool used = false;
  };
  fake_core core;
  busy one{core}, other{core};
  core.have({&one, &other});
  CHECK_FALSE(core.in_use());
  CHECK(core.may_hibernate());
  other.used = true;
  CHECK(core.in_use());
  CHECK_FALSE(core.may_hibernate());
  other.used = false;
  auto awake = core.keep_awake();
  CHECK(core.in_use());
  awake.reset();
  core.run();
  CHECK_FALSE(core.in_use());
  const pending_operation asking{core};
  CHECK_FALSE(core.may_hibernate());
  asking.over();
  CHECK(core.may_hibernate());
  CHECK(core.rests == 1);
}

TEST_CASE("a record is loaded before it is asked, and its answer ends the operation", "[parts]") {
  fake_core core;
  owed<bool> told;
  core.with_record(reply<bool>(told), {}, [&](const reply<bool>& mine) {
    CHECK(core.operations() == 1);
    mine.deliver(true);
  });
  CHECK(told.got());
  CHECK(core.operations() == 0);

  core.cluster.read_error = error{errc::store_failed, "gone"};
  owed<bool> failed;
  core.with_record(reply<bool>(failed), {}, [](const reply<bool>&) { FAIL("it is not loaded"); });
  CHECK(failed.code() == errc::store_failed);
  CHECK(core.operations() == 0);

  core.set_refusal(leaves_node);
  owed<bool> refused;
  core.with_record(reply<bool>(refused), {}, [](const reply<bool>&) { FAIL("it leaves"); });
  CHECK(refused.code() == errc::node_unreachable);
}

TEST_CASE("the first request starts the sandbox, and all that wait are served", "[parts]") {
  whole_sandbox box;
  box.engine.ready_at_once = false;
  const auto first = box.use(), second = box.use();
  REQUIRE(box.engine.creations.size() == 1);
  CHECK(first.open());
  CHECK(box.now() == phase::starting);
  box.engine.creations.back().ready();
  box.run();
  first.got();
  second.got();
  CHECK(box.now() == phase::running);
  CHECK(box.cluster.kept.count("created_ms") == 1);
}

TEST_CASE("a start that fails refuses those who wait, and the next one is a new one", "[parts]") {
  whole_sandbox box;
  box.engine.ready_at_once = false;
  const auto told = box.use();
  box.engine.creations.back().fail("no");
  box.run();
  CHECK(told.code() == errc::launch_failed);
  CHECK(box.now() == phase::asleep);
  CHECK(box.leases.held.empty());
  box.engine.ready_at_once = true;
  box.use().got();
}

TEST_CASE("a sandbox runs once its record is durable", "[parts]") {
  whole_sandbox box;
  box.cluster.hold = true;
  const auto told = box.use();
  CHECK(box.engine.creations.size() == 1);
  CHECK(told.open());
  box.cluster.let_go();
  box.run();
  told.got();
}

TEST_CASE("what has to settle before a sandbox runs does so in its order", "[parts]") {
  struct slow : part {
    using part::part;
    bool settle(const then_function& then, const otherwise_function& failed) override {
      ++asked;
      on_done = then;
      on_failed = failed;
      return done;
    }
    bool done = false;
    int asked = 0;
    then_function on_done;
    otherwise_function on_failed;
  };
  whole_sandbox box;
  slow first{box}, second{box};
  auto all = box.parts.table();
  all.insert(all.end(), {&first, &second});
  box.have(all);
  const auto told = box.use();
  CHECK(first.asked == 1);
  CHECK(second.asked == 0);
  first.done = true;
  first.on_done();
  CHECK(second.asked == 1);
  second.on_failed({errc::launch_failed, "not there"});
  CHECK(told.code() == errc::launch_failed);
  CHECK(box.now() == phase::asleep);
}

TEST_CASE("an unused sandbox stands still, goes on when it is needed, and is stopped", "[parts]") {
  whole_sandbox box;
  box.fake_world::options->ladder = {1min, 1h};
  box.use().got();
  box.advance(61s);
  CHECK(box.now() == phase::frozen);
  box.use().got();
  CHECK(box.now() == phase::running);
  CHECK(box.newest().thaws == 1);
  box.advance(1h + 1min);
  CHECK(box.now() == phase::asleep);
  CHECK(box.newest().destroys == 1);
  CHECK(box.leases.held.empty());
}

TEST_CASE("a sandbox in use takes no step of the ladder", "[parts]") {
  whole_sandbox box;
  box.fake_world::options->ladder = {1min, 1h};
  box.use().got();
  auto awake = box.keep_awake();
  box.advance(3h);
  CHECK(box.now() == phase::running);
  awake.reset();
  box.run();
  box.advance(61s);
  CHECK(box.now() == phase::frozen);
}

TEST_CASE("a paused sandbox keeps its requests waiting, for a while", "[parts]") {
  whole_sandbox box;
  box.use().got();
  owed<sandbox_description> paused;
  box.parts.pause_.set({true}, paused);
  CHECK(paused.open()); // Until it stands still.
  box.run();
  CHECK(paused.got().paused);
  CHECK(box.now() == phase::frozen);
  CHECK(box.cluster.kept.count("paused") == 1);

  const auto impatient = box.use();
  CHECK(impatient.open());
  box.advance(limits::pause_patience);
  CHECK(impatient.code() == errc::deadline_exceeded);

  const auto patient = box.use();
  owed<sandbox_description> again;
  box.parts.pause_.set({true}, again);
  CHECK(again.code() == errc::invalid_request);
  owed<sandbox_description> resumed;
  box.parts.pause_.set({false}, resumed);
  box.run();
  CHECK_FALSE(resumed.got().paused);
  patient.got();
  CHECK(box.now() == phase::running);
}

TEST_CASE("a pause that does not come to stand still is undone", "[parts]") {
  whole_sandbox box;
  box.use().got();
  box.newest().hold_freeze = true;
  owed<sandbox_description> paused;
  box.parts.pause_.set({true}, paused);
  box.newest().finish_freeze(false);
  box.run();
  CHECK(paused.code() == errc::io_failed);
  CHECK_FALSE(box.is_held());
}

TEST_CASE("the end of a sandbox settles a pause that waits for it to stand still", "[parts]") {
  whole_sandbox box;
  box.use().got();
  box.newest().hold_freeze = true;
  owed<sandbox_description> paused;
  box.parts.pause_.set({true}, paused);
  box.engine.creations.back().end();
  box.run();
  CHECK(paused.code() == errc::sandbox_not_running);
  CHECK(box.now() == phase::asleep);
}

TEST_CASE("the gate takes so many requests and no more", "[parts]") {
  whole_sandbox box;
  box.engine.ready_at_once = false;
  std::vector<owed<caf::ok_atom>> all;
  for (std::size_t i = 0; i < limits::waiting_per_sandbox; ++i)
    all.push_back(box.use());
  CHECK(box.use().code() == errc::limit_reached);
  box.ends();
  CHECK(all.front().code() == errc::sandbox_not_running);
  CHECK(all.back().code() == errc::sandbox_not_running);
}

TEST_CASE("a deletion ends what runs, then what is kept, then the actor", "[parts]") {
  whole_sandbox box;
  box.use().got();
  box.newest().hold_destroy = true;
  owed<caf::ok_atom> first, second;
  box.parts.teardown_.remove({}, first);
  box.parts.teardown_.remove({}, second);
  CHECK(box.now() == phase::deleting);
  CHECK(box.use().code() == errc::sandbox_not_running);
  CHECK_FALSE(box.cluster.kept.empty());
  box.newest().finish_destroy();
  box.run();
  first.got();
  second.got();
  CHECK(box.cluster.kept.empty());
  CHECK(box.leases.held.empty());
  CHECK(box.quits == 1);
}

TEST_CASE("a deletion overtakes a start", "[parts]") {
  whole_sandbox box;
  box.engine.ready_at_once = false;
  const auto waits = box.use();
  owed<caf::ok_atom> deleted;
  box.parts.teardown_.remove({}, deleted);
  CHECK(waits.code() == errc::sandbox_not_running);
  CHECK(deleted.open());
  box.engine.creations.back().ready();
  box.run();
  deleted.got();
  CHECK(box.newest().destroys == 1);
}

TEST_CASE("an evicted sandbox ends, and its record stays", "[parts]") {
  whole_sandbox box;
  box.use().got();
  owed<caf::ok_atom> evicted;
  box.parts.teardown_.evict(evicted);
  box.run();
  evicted.got();
  CHECK_FALSE(box.cluster.kept.empty());
  CHECK(box.use().code() == errc::node_unreachable);
  CHECK(box.quits == 1);
}

TEST_CASE("a sandbox that is handed over is stopped, and asked no more", "[parts]") {
  whole_sandbox box;
  box.use().got();
  owed<caf::ok_atom> over;
  box.parts.teardown_.hand_over(over);
  CHECK(box.use().code() == errc::node_unreachable);
  box.run();
  over.got();
  CHECK(box.now() == phase::asleep);
  CHECK(box.leases.held.empty());
}

TEST_CASE("an alarm of the sandbox deletes it when its time is over, and not before", "[parts]") {
  whole_sandbox box;
  box.cluster.kept = {{"created_ms", "1"},
                      {"expires_ms", std::to_string(box.time.unix_ms() + 5000)}};
  box.cluster.alarm = 1ms;
  const alarm_due due{{kept_in::cluster, "abc", ""}, "x"};
  owed<caf::ok_atom> early, late;
  box.parts.teardown_.attend(due, early);
  box.run();
  early.got();
  CHECK(box.cluster.alarm == 5000ms);
  box.time.advance(5s);
  box.parts.teardown_.attend(due, late);
  box.run();
  late.got();
  CHECK(box.cluster.kept.empty());
}

TEST_CASE("the disk of a persistent sandbox is kept before it stands still", "[parts]") {
  whole_sandbox box;
  box.fake_world::options->keeps_disks = true;
  box.fake_world::options->keep_interval = 10min;
  box.fake_world::options->ladder.freeze_after = 1min;
  request_context wants;
  wants.persistent = true;
  box.use(wants).got();
  box.use(wants).got();
  CHECK(box.cluster.kept.count("persistent") == 1);
  box.newest().hold_snapshot = true;
  box.advance(61s);
  REQUIRE(box.newest().taking.size() == 1);
  CHECK(box.now() == phase::running);
  box.newest().finish_snapshots();
  box.run();
  box.advance(20s);
  CHECK(box.now() == phase::frozen);
  CHECK(box.cluster.kept.count("disk_from") == 1);
}

TEST_CASE("the files of the last snapshot are back before a request is served", "[parts]") {
  whole_sandbox box;
  fake_snapshot_archive files;
  files.hold = true;
  box.fake_world::options->files = &files;
  box.cluster.kept = {{"created_ms", "1"}, {"persistent", "1"}, {"snapshot", "42 place7"}};
  request_context asks;
  asks.recovered = std::make_shared<recovery_place>();
  const auto told = box.use(asks);
  CHECK(told.open());
  REQUIRE(files.back.size() == 1);
  CHECK(files.back.front().what.from == "place7");
  CHECK(box.cluster.kept.count("half_files") == 1);
  files.finish_back();
  box.run();
  told.got();
  CHECK(box.cluster.kept.count("half_files") == 0);
  CHECK(asks.recovered->tell() == 42);
}

TEST_CASE("files that cannot be put back fail the start", "[parts]") {
  whole_sandbox box;
  fake_snapshot_archive files;
  files.failure = error{errc::store_failed, "away"};
  box.fake_world::options->files = &files;
  box.cluster.kept = {{"created_ms", "1"}, {"persistent", "1"}, {"snapshot", "42 place7"}};
  CHECK(box.use().code() == errc::store_failed);
  CHECK(box.newest().destroys == 1);
}

TEST_CASE("what an earlier server has left is taken over, and ended if nobody would ask for it",
          "[parts]") {
  whole_sandbox box;
  box.cluster.kept = {{"created_ms", "1"}, {"started_ms", "2"}};
  const auto place = std::make_shared<fake_sandbox>();
  using runtime::survivor_kind;
  const auto label = [](const std::string& session) {
    return actors::note_of(session, {}).label();
  };
  place->left = {{1, survivor_kind::command, label("")},
                 {2, survivor_kind::command, "of another version"},
                 {3, survivor_kind::shell, label("one")},
                 {4, survivor_kind::terminal, label("one")},
                 {5, survivor_kind::shell_command, "of another version", 3}};
  box.engine.left["abc"] = place;
  box.parts.startup_.adopt();
  box.run();
  CHECK(box.now() == phase::running);
  CHECK(place->disowned == std::vector<std::uint64_t>{5, 2});
  CHECK(box.processes.size() == 1);
  CHECK(box.processes.front()->started);
  CHECK(box.sessions.size() == 1);
  CHECK(box.terminals.size() == 1);
  CHECK(box.status().sessions == 1);
  CHECK(box.status().terminals == 1);
}

TEST_CASE("the engine that is played has snapshots as the real one has", "[parts][snapshots]") {
  fake_engine engine;
  check_snapshot_contract(
    engine,
    [&](const std::string& from) {
      std::shared_ptr<runtime::sandbox> made;
      runtime::sandbox_listener heard;
      heard.on_ready = [&](const auto& is) { made = is; };
      heard.on_failed = [](const error&) {};
      heard.on_ended = [] {};
      runtime::sandbox_spec spec;
      spec.disk_from = from;
      engine.create(std::move(spec), std::move(heard));
      return made;
    },
    [&](const std::shared_ptr<runtime::sandbox>& which) {
      for (auto& each : engine.creations)
        if (each.place == which)
          each.end();
    },
    {});
}

TEST_CASE("the engine that is played has drives as the real one has", "[parts][drives]") {
  fake_engine engine;
  check_drive_contract(
    engine,
    [&] {
      std::shared_ptr<runtime::sandbox> made;
      runtime::sandbox_listener heard;
      heard.on_ready = [&](const auto& is) { made = is; };
      heard.on_failed = [](const error&) {};
      heard.on_ended = [] {};
      engine.create({}, std::move(heard));
      return made;
    },
    [&](const std::shared_ptr<runtime::sandbox>& which) {
      for (auto& each : engine.creations)
        if (each.place == which)
          each.end();
    },
    [](const auto&) {});
}

// The runs of a sandbox that has them, without an actor system.
#include "actors/run_record.hpp"
#include "tests/actors/sandbox/fake_core.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// A sandbox that is defined, and has had no run yet.
class box_with_runs final {
public:
  box_with_runs() { box.cluster.kept["created_ms"] = "1"; }

  owed<run_report> begin(std::chrono::milliseconds timeout = 5min) {
    owed<run_report> told;
    box.parts.runs_.begin({timeout.count()}, told);
    box.run();
    return told;
  }
  owed<run_report> stop(std::uint64_t number) {
    owed<run_report> told;
    box.parts.runs_.stop({number}, told);
    box.run();
    return told;
  }
  run_list find(find_runs asked = {0, 0, 10}) {
    owed<run_list> told;
    box.parts.runs_.find(asked, told);
    box.run();
    return told.got();
  }
  /// A request of one run's, or of any.
  owed<caf::ok_atom> use(std::uint64_t run = 0) {
    request_context context;
    context.run = run;
    return box.use(context);
  }
  /// As the alarm does it.
  void attend() {
    owed<caf::ok_atom> told;
    box.parts.teardown_.attend({{kept_in::cluster, "abc", "deadline/"}, "1"}, told);
    box.run();
    told.got();
  }

  whole_sandbox box;
};

} // namespace

TEST_CASE("a run whose start could not be written runs with the next request", "[parts][runs]") {
  box_with_runs it;
  auto& box = it.box;
  auto run = it.begin().got().run;
  run.state = run_state::pending; // As an object has it again whose write was refused.
  run.started_ms = 0;
  box.cluster.kept[actors::key_of_run(run.number)] = actors::text_of(run);
  const auto again = it.begin().got();
  CHECK(again.run.number == run.number);
  CHECK(again.run.state == run_state::running);
  CHECK(box.engine.creations.size() == 1);
  CHECK(it.stop(run.number).got().run.state == run_state::stopped);
}

TEST_CASE("a run begins with its sandbox, and ends with it", "[parts][runs]") {
  box_with_runs it;
  auto& box = it.box;
  const auto begun = it.begin().got();
  CHECK(begun.begun);
  CHECK(begun.run.state == run_state::running);
  CHECK(begun.run.timeout_ms == 300'000);
  CHECK(begun.run.number > 0);
  CHECK(box.now() == phase::running);
  CHECK(box.clock.alarm == 5min);
  it.use(begun.run.number).got();
  it.use().got();

  INFO("who asks for one meanwhile gets the same");
  const auto again = it.begin().got();
  CHECK_FALSE(again.begun);
  CHECK(again.run.number == begun.run.number);

  box.newest().used = runtime::sandbox_usage{{}, 1500ms, {}};
  box.time.advance(7s);
  const auto stopped = it.stop(begun.run.number).got();
  CHECK(stopped.run.state == run_state::stopped);
  CHECK(stopped.run.ended_ms - stopped.run.started_ms == 7000);
  CHECK(stopped.run.cpu_ms == 1500);
  CHECK(stopped.sandbox.totals.runs == 1);
  CHECK(stopped.sandbox.totals.duration_ms == 7000);
  CHECK(box.now() == phase::asleep);
  CHECK(box.newest().destroys == 1);
  CHECK(box.leases.held.empty());

  INFO("stopped again, it answers the same");
  CHECK(it.stop(begun.run.number).got().run.ended_ms == stopped.run.ended_ms);
  CHECK(it.stop(99).code() == errc::not_found);
}

TEST_CASE("without a run such a sandbox is not started", "[parts][runs]") {
  box_with_runs it;
  const auto first = it.begin().got().run.number;
  it.stop(first).got();
  CHECK(it.use().code() == errc::run_over);
  CHECK(it.use(first).code() == errc::run_over);
  CHECK(it.box.engine.creations.size() == 1);
  const auto second = it.begin().got();
  CHECK(second.begun);
  CHECK(second.run.number > first);
  CHECK(it.box.engine.creations.size() == 2);
  CHECK(it.use(first).code() == errc::run_over);
  it.use(second.run.number).got();
  CHECK(it.use(second.run.number + 1).code() == errc::not_found);
}

TEST_CASE("those who begin a run at the same time get one", "[parts][runs]") {
  box_with_runs it;
  it.box.engine.ready_at_once = false;
  const auto one = it.begin(), other = it.begin();
  CHECK(one.open());
  CHECK(it.find().runs.front().state == run_state::pending);
  it.box.engine.creations.back().ready();
  it.box.run();
  CHECK(one.got().begun);
  CHECK_FALSE(other.got().begun);
  CHECK(one.got().run.number == other.got().run.number);
  CHECK(it.box.engine.creations.size() == 1);
}

TEST_CASE("those who stop a run wait for the same stop, and the next run for its end",
          "[parts][runs]") {
  box_with_runs it;
  const auto number = it.begin().got().run.number;
  auto& place = it.box.newest();
  place.hold_destroy = true;
  const auto one = it.stop(number), other = it.stop(number);
  CHECK(one.open());
  const auto late = it.use(number);
  CHECK(late.open());
  const auto next = it.begin();
  CHECK(next.open());
  CHECK(it.find().runs.front().state == run_state::stopping);
  place.finish_destroy();
  it.box.run();
  CHECK(one.got().run.state == run_state::stopped);
  CHECK(other.got().run.state == run_state::stopped);
  CHECK(next.got().begun);
  CHECK(next.got().run.number > number);
  CHECK(late.code() == errc::run_over);
}

TEST_CASE("a run that is stopped while it starts ends once it runs", "[parts][runs]") {
  box_with_runs it;
  it.box.engine.ready_at_once = false;
  const auto begun = it.begin();
  const auto stopped = it.stop(it.find().runs.front().number);
  CHECK(stopped.open());
  it.box.engine.creations.back().ready();
  it.box.run();
  CHECK(begun.got().begun);
  CHECK(stopped.got().run.state == run_state::stopped);
}

TEST_CASE("a run whose sandbox does not start has failed", "[parts][runs]") {
  box_with_runs it;
  it.box.engine.ready_at_once = false;
  const auto told = it.begin();
  it.box.engine.creations.back().fail("no");
  it.box.run();
  CHECK(told.code() == errc::launch_failed);
  CHECK(it.find().runs.front().state == run_state::failed);
  it.box.engine.ready_at_once = true;
  CHECK(it.begin().got().begun);
}

TEST_CASE("a run ends at its deadline, which can be put off", "[parts][runs]") {
  box_with_runs it;
  auto& box = it.box;
  const auto number = it.begin(1min).got().run.number;
  const auto extend = [&](std::int64_t by_ms, std::int64_t most_ms) {
    owed<run_report> told;
    box.parts.runs_.extend({number, by_ms, most_ms}, told);
    box.run();
    return told;
  };
  box.advance(30s);
  CHECK(extend(60'000, 119'999).code() == errc::invalid_request);
  CHECK(extend(60'000, 120'000).got().run.timeout_ms == 120'000);
  CHECK(box.clock.alarm == 90s);
  INFO("an alarm that does not know of it is followed by another one");
  box.clock.set_alarm(30s, {{"time_ms", "60000"}});
  box.advance(30s);
  it.attend();
  CHECK(box.now() == phase::running);
  CHECK(box.clock.alarm_left() == 1min);
  box.advance(60s);
  it.attend();
  CHECK(box.now() == phase::asleep);
  CHECK_FALSE(box.clock.alarm);
  const auto run = it.find().runs.front();
  CHECK(run.state == run_state::stopped);
  CHECK(run.ended_ms - run.started_ms == 120'000);
  CHECK(extend(1, 1'000'000).code() == errc::run_over);
}

TEST_CASE("the alarm of an earlier run ends no later one", "[parts][runs]") {
  box_with_runs it;
  auto& box = it.box;
  const auto first = it.begin(1min).got().run.number;
  it.stop(first).got();
  const auto second = it.begin(5min).got().run.number;
  box.clock.set_alarm(30s, {{"run", std::to_string(first)}, {"time_ms", "60000"}});
  box.advance(30s);
  it.attend();
  CHECK(box.now() == phase::running);
  CHECK(box.clock.alarm_left() == 4min + 30s);
  CHECK(box.clock.value("run") == std::to_string(second));
}

TEST_CASE("a deadline that was not written is written later", "[parts][runs]") {
  box_with_runs it;
  auto& box = it.box;
  box.clock.write_error = error{errc::disk_full, "no room"};
  const auto number = it.begin(5min).got().run.number;
  box.clock.write_error.reset();
  box.clock.kept.clear(); // The store has taken it back.
  box.clock.alarm.reset();
  box.advance(5s);
  box.run();
  CHECK(box.clock.alarm_left() == 4min + 55s);
  CHECK(box.clock.value("run") == std::to_string(number));
}

TEST_CASE("more time for a run whose alarm an earlier version has set", "[parts][runs]") {
  box_with_runs it;
  auto& box = it.box;
  const auto number = it.begin(1min).got().run.number;
  box.clock.kept.clear();
  box.advance(30s);
  owed<run_report> told;
  box.parts.runs_.extend({number, 60'000, 600'000}, told);
  box.run();
  CHECK(told.got().run.timeout_ms == 120'000);
  CHECK(box.clock.alarm_left() == 90s);
}

TEST_CASE("no jump of the wall clock moves the end of a run", "[parts][runs]") {
  const auto jump = GENERATE(-24h, 24h);
  box_with_runs it;
  auto& box = it.box;
  const auto number = it.begin(1min).got().run.number;
  box.advance(30s);
  box.time.jump(jump);
  owed<run_report> told;
  box.parts.runs_.extend({number, 60'000, 600'000}, told);
  box.run();
  CHECK(told.got().run.timeout_ms == 120'000);
  CHECK(box.clock.alarm_left() == 90s);
  box.time.jump(jump);
  box.advance(90s);
  it.attend();
  CHECK(box.now() == phase::asleep);
  const auto run = it.find().runs.front();
  CHECK(run.state == run_state::stopped);
  CHECK(run.stop_asked_ms >= run.started_ms);
  CHECK(run.ended_ms >= run.stop_asked_ms);
}

TEST_CASE("a run whose sandbox ends by itself was aborted", "[parts][runs]") {
  box_with_runs it;
  const auto number = it.begin().got().run.number;
  SECTION("as it is seen") {
    it.box.engine.creations.back().end();
    it.box.run();
  }
  SECTION("as the next server finds it") {
    it.box.stops();
    it.box.cluster.kept["run/" + std::string(15, '0') + std::to_string(number)] =
      "1 1 1 0 0 300000 0 0 0";
  }
  const auto run = it.find().runs.front();
  CHECK(run.state == run_state::aborted);
  CHECK(run.ended_ms > 0);
  CHECK(it.use().code() == errc::run_over);
  CHECK(it.begin().got().begun);
}

TEST_CASE("a run that a server left pending goes on once the next one has the sandbox",
          "[parts][runs]") {
  box_with_runs it;
  auto& box = it.box;
  box.cluster.kept["started_ms"] = "2";
  box.cluster.kept["run/" + std::string(15, '0') + "1"] = "0 1 0 0 0 300000 0 0 0";
  box.engine.left["abc"] = std::make_shared<fake_sandbox>();
  owed<run_report> told;
  SECTION("for those who ask for one before") {
    box.parts.runs_.begin({300'000}, told);
    box.run();
    box.parts.startup_.adopt();
    box.run();
    CHECK(told.got().run.number == 1);
  }
  SECTION("for those who ask for one after") {
    box.parts.startup_.adopt();
    box.run();
    CHECK(it.begin().got().run.number == 1);
  }
  const auto run = it.find().runs.front();
  CHECK(run.state == run_state::running);
  CHECK(run.started_ms > 0);
  CHECK(box.engine.creations.empty());
  it.use(1).got();
}

TEST_CASE("the status of a sandbox has its latest run and its caption", "[parts][runs]") {
  box_with_runs it;
  auto& box = it.box;
  box.fake_world::options->captions = [](const api_metadata& all) {
    const auto at = all.find("some");
    return at == all.end() ? std::nullopt
                           : std::optional{sandbox_caption{"g", "n", {{"tag", at->second}}}};
  };
  CHECK_FALSE(box.status().run);
  CHECK_FALSE(box.status().caption);
  box.cluster.kept["metadata/some"] = "one";
  const auto number = it.begin(1min).got().run.number;
  auto told = box.status();
  REQUIRE(told.run);
  CHECK(told.run->number == number);
  CHECK(told.run->state == run_state::running);
  CHECK(told.run->timeout_ms == 60'000);
  REQUIRE(told.caption);
  CHECK(told.caption->group == "g");
  CHECK(told.caption->name == "n");
  CHECK(told.caption->tags.at("tag") == "one");
  REQUIRE(it.find().sandbox.caption);
  CHECK(it.find().sandbox.caption->tags.at("tag") == "one");

  box.cluster.kept["metadata/some"] = "another";
  CHECK(box.status().caption->tags.at("tag") == "another");

  SECTION("stopped") {
    it.stop(number).got();
    told = box.status();
    REQUIRE(told.run);
    CHECK(told.run->state == run_state::stopped);
    CHECK(told.run->ended_ms > 0);
  }
  SECTION("cut off, before anybody has asked for its runs") {
    box.stops();
    box.cluster.kept["run/" + std::string(15, '0') + std::to_string(number)] =
      "1 1 1 0 0 300000 0 0 0";
    const auto before = box.cluster.kept;
    told = box.status();
    REQUIRE(told.run);
    CHECK(told.run->state == run_state::aborted);
    CHECK(box.cluster.kept == before);
  }
}

TEST_CASE("a sandbox with a run does not sleep", "[parts][runs]") {
  box_with_runs it;
  it.box.fake_world::options->ladder = {1min, 1h};
  it.begin(24h).got();
  it.box.advance(3h);
  CHECK(it.box.now() == phase::running);
}

TEST_CASE("programs are asked to end before their run does", "[parts][runs]") {
  box_with_runs it;
  const auto number = it.begin().got().run.number;
  owed<process_actor> started;
  exec_request wanted;
  wanted.command_line = "sleep 9";
  it.box.parts.commands_.run({wanted, nullptr}, started);
  it.stop(number).got();
  CHECK(it.box.processes.back()->interrupted);
}

TEST_CASE("runs are told by pages, and the oldest are forgotten but in the sums", "[parts][runs]") {
  box_with_runs it;
  for (std::size_t i = 0; i < limits::kept_runs + 3; ++i)
    it.stop(it.begin().got().run.number).got();
  const auto first = it.find({0, 0, 2});
  REQUIRE(first.runs.size() == 2);
  CHECK(first.more);
  CHECK(first.runs[0].number > first.runs[1].number);
  CHECK(first.sandbox.totals.runs == limits::kept_runs + 3);
  const auto next = it.find({0, first.runs[1].number, 1'000});
  CHECK(next.runs.size() == limits::kept_runs - 2);
  CHECK_FALSE(next.more);
  CHECK(next.runs.front().number < first.runs[1].number);
  CHECK(it.find({first.runs[1].number, 0, 1}).runs.size() == 1);
}

TEST_CASE("a sandbox that is deleted refuses those who wait for a run", "[parts][runs]") {
  box_with_runs it;
  it.box.engine.ready_at_once = false;
  const auto told = it.begin();
  owed<caf::ok_atom> gone;
  it.box.parts.teardown_.remove({}, gone);
  it.box.engine.creations.back().ready();
  it.box.run();
  CHECK(told.code() == errc::sandbox_not_running);
  gone.got();
  CHECK(it.box.cluster.kept.empty());
}

TEST_CASE("a text becomes another one when the run begins, and not before", "[parts][runs]") {
  whole_sandbox box;
  define_sandbox wanted;
  wanted.metadata["api"] = "half";
  wanted.prompt = true;
  box.cluster.hold = true;
  owed<sandbox_description> made;
  box.parts.description_.define(wanted, made);
  box.run();
  INFO("the answer does not wait until it is durable, and that of the run does");
  CHECK(made.got().metadata["api"] == "half");
  begin_run asked{60'000};
  const auto text = [&] {
    owed<run_list> told;
    box.parts.runs_.find({0, 0, 10}, told);
    box.run();
    return told.got().sandbox.metadata["api"];
  };
  SECTION("that is as it was") {
    asked.with = metadata_change{"api", "whole", "half"};
    owed<run_report> begun;
    box.parts.runs_.begin(asked, begun);
    box.run();
    CHECK(begun.open());
    box.cluster.let_go();
    box.run();
    CHECK(begun.got().sandbox.metadata["api"] == "whole");
  }
  SECTION("that is another one by now") {
    asked.with = metadata_change{"api", "whole", "other"};
    owed<run_report> begun;
    box.parts.runs_.begin(asked, begun);
    box.cluster.let_go();
    box.run();
    CHECK(begun.got().sandbox.metadata["api"] == "half");
  }
  SECTION("of a sandbox that does not come to run") {
    box.engine.ready_at_once = false;
    asked.with = metadata_change{"api", "whole", "half"};
    owed<run_report> begun;
    box.parts.runs_.begin(asked, begun);
    box.cluster.let_go();
    box.run();
    CHECK(text() == "half");
    box.engine.creations.back().fail("no");
    box.run();
    CHECK(begun.code() == errc::launch_failed);
    CHECK(text() == "half");
  }
}

TEST_CASE("a definition that the store refuses later leaves no sandbox, and each is answered",
          "[parts][runs]") {
  whole_sandbox box;
  define_sandbox wanted;
  wanted.prompt = true;
  box.cluster.hold = true;
  owed<sandbox_description> made;
  box.parts.description_.define(wanted, made);
  box.run();
  CHECK(made.got().exists);
  owed<run_report> begun;
  const auto refuse = [&] { // As an object does it: nothing of that batch is there any more.
    box.cluster.kept.clear();
    box.cluster.write_error = error{errc::store_failed, "no"};
    box.cluster.let_go();
    box.cluster.write_error.reset();
    box.run();
  };
  SECTION("before its run begins") {
    refuse();
    box.parts.runs_.begin({60'000}, begun);
    box.run();
    CHECK(begun.code() == errc::not_found);
  }
  SECTION("while the sandbox is made") {
    box.engine.ready_at_once = false;
    box.parts.runs_.begin({60'000}, begun);
    box.run();
    refuse();
    if (!box.engine.creations.empty())
      box.engine.creations.back().ready();
    box.run();
    CHECK(begun.code() == errc::store_failed);
  }
  CHECK(box.now() == phase::asleep);
  CHECK(box.cluster.kept.empty());
}

TEST_CASE("there is no run of what is not there", "[parts][runs]") {
  whole_sandbox box;
  owed<run_report> begun;
  box.parts.runs_.begin({1000}, begun);
  owed<run_list> found;
  box.parts.runs_.find({}, found);
  box.run();
  CHECK(begun.code() == errc::not_found);
  CHECK(found.code() == errc::not_found);
}

// ---- From run to run

namespace {

/// Whose runs leave their disks.
class box_with_disks final {
public:
  box_with_disks() {
    box.fake_world::options->run_disks = [this](const api_metadata&) { return kept; };
  }
  owed<run_report> resume() {
    owed<run_report> told;
    begin_run wanted{60'000};
    wanted.resumes = true;
    box.parts.runs_.begin(wanted, told);
    box.run();
    return told;
  }
  owed<run_report> snapshot(std::uint64_t number, std::optional<std::int64_t> keep_ms = {}) {
    owed<run_report> told;
    stop_run wanted{number};
    wanted.snapshots = true;
    wanted.keep_ms = keep_ms;
    box.parts.runs_.stop(wanted, told);
    box.run();
    return told;
  }
  owed<sandbox_description> aim_at(const std::string& snapshot) {
    owed<sandbox_description> told;
    redefine_sandbox wanted;
    wanted.snapshot = snapshot;
    box.parts.description_.redefine(wanted, told);
    box.run();
    return told;
  }
  std::string value(const char* key) { return box.cluster.value(key); }
  snapshot_description& made(const std::string& id) { return box.snapshots.at(id); }

  snapshot_retention kept{true, 1'000, 2, 0};
  box_with_runs it;
  whole_sandbox& box = it.box;
};

} // namespace

TEST_CASE("a run leaves its disk to the next one", "[parts][runs][snapshots]") {
  box_with_disks with;
  auto& box = with.box;
  const auto first = with.it.begin().got().run;
  CHECK(first.began_with.empty());
  const auto stopped = with.it.stop(first.number).got();
  CHECK(stopped.run.state == run_state::stopped);
  const auto left = stopped.run.snapshot;
  REQUIRE(box.snapshots.contains(left));
  CHECK(stopped.sandbox.snapshot == left);
  CHECK(with.value("disk_from") == left);
  CHECK(with.made(left).automatic);
  CHECK(with.made(left).run == first.number);
  CHECK(with.made(left).keep_ms == 1'000);
  CHECK(with.made(left).parent.empty());
  CHECK(box.released.empty());
  INFO("asked again it is the same");
  CHECK(with.it.stop(first.number).got().run.snapshot == left);
  CHECK(box.snapshots.size() == 1);

  const auto second = with.resume().got();
  CHECK(second.begun);
  CHECK(second.run.began_with == left);
  CHECK(box.engine.creations.back().spec.disk_from == left);
  const auto next = with.it.stop(second.run.number).got().run.snapshot;
  CHECK(next != left);
  CHECK(with.made(next).parent == left);
  CHECK(with.value("disk_from") == next);
  CHECK(box.released == std::vector<std::string>{left});
}

TEST_CASE("without a snapshot there is no next run", "[parts][runs][snapshots]") {
  box_with_disks with;
  with.kept.keeps = false;
  const auto first = with.it.begin().got().run.number;
  CHECK(with.it.stop(first).got().run.snapshot.empty());
  CHECK(with.box.snapshots.empty());
  CHECK(with.resume().code() == errc::snapshot_gone);
  CHECK(with.box.engine.creations.size() == 1);

  INFO("a client may ask for one all the same");
  with.box.cluster.kept.erase("run/0000000000000001");
  const auto second = with.it.begin().got().run.number;
  const auto asked = with.snapshot(second, 0).got();
  CHECK(asked.run.state == run_state::stopped);
  CHECK_FALSE(with.made(asked.run.snapshot).automatic);
  CHECK(with.made(asked.run.snapshot).keep_ms == 0);
  CHECK(with.snapshot(second).code() == errc::run_over);
  CHECK(with.resume().got().run.began_with == asked.run.snapshot);

  INFO("one that was deleted is none");
  const auto third = with.it.find().runs.front().number;
  CHECK(with.it.stop(third).got().run.state == run_state::stopped);
  with.made(asked.run.snapshot).state = snapshot_state::deleted;
  CHECK(with.resume().code() == errc::snapshot_gone);
  CHECK(with.it.find().runs.front().number == third);
}

TEST_CASE("while a run ends it says why nothing is served", "[parts][runs][snapshots]") {
  box_with_disks with;
  const auto number = with.it.begin().got().run.number;
  auto& place = with.box.newest();
  place.hold_snapshot = true;
  const bool asked = GENERATE(false, true);
  auto told = asked ? with.snapshot(number) : with.it.stop(number);
  CHECK(told.open());
  CHECK(with.it.find().runs.front().state ==
        (asked ? run_state::snapshotting : run_state::stopping));
  const auto why = asked ? errc::run_snapshotting : errc::run_stopping;
  CHECK(with.it.use(number).code() == why);
  CHECK(with.snapshot(number).code() == why);
  auto next = with.resume();
  CHECK(next.open());
  place.hold_snapshot = false;
  place.finish_snapshots();
  with.box.run();
  const auto left = told.got().run.snapshot;
  CHECK(next.got().begun);
  CHECK(next.got().run.began_with == left);
}

TEST_CASE("a run whose disk cannot be kept has failed, and the snapshot before stays",
          "[parts][runs][snapshots]") {
  box_with_disks with;
  const auto left = with.it.stop(with.it.begin().got().run.number).got().run.snapshot;
  const auto second = with.resume().got().run.number;
  with.box.newest().snapshot_error = error{errc::io_failed, "the disk is full"};
  const auto failed = with.it.stop(second).got();
  CHECK(failed.run.state == run_state::failed);
  CHECK(failed.run.snapshot.empty());
  CHECK(failed.sandbox.snapshot == left);
  CHECK(with.box.now() == phase::asleep);
  CHECK(with.resume().got().run.began_with == left);
}

TEST_CASE("the next run begins with the snapshot that a client names", "[parts][runs][snapshots]") {
  box_with_disks with;
  const auto old = with.it.stop(with.it.begin().got().run.number).got().run.snapshot;
  const auto second = with.resume().got().run.number;
  const auto newer = with.it.stop(second).got().run.snapshot;
  CHECK(with.aim_at("no such").code() == errc::snapshot_gone);
  CHECK(with.value("disk_from") == newer);
  CHECK(with.aim_at(old).got().snapshot == old);
  CHECK(with.value("disk_from") == old);
  const auto third = with.resume().got().run;
  CHECK(third.began_with == old);

  INFO("of one that runs, what it leaves counts, and comes from what it has begun with");
  CHECK(with.aim_at(newer).got().snapshot == newer);
  const auto last = with.it.stop(third.number).got().run.snapshot;
  CHECK(with.made(last).parent == old);
  CHECK(with.value("disk_from") == last);

  INFO("a snapshot of another group is none");
  snapshot_description other{"other", "elsewhere"};
  other.group = "theirs";
  with.box.snapshots["other"] = other;
  CHECK(with.aim_at("other").code() == errc::snapshot_gone);
}

TEST_CASE("a snapshot that the run goes on after is what the next one begins with",
          "[parts][runs][snapshots]") {
  box_with_disks with;
  const auto number = with.it.begin().got().run.number;
  const auto take = [&] {
    owed<snapshot_description> told;
    take_snapshot wanted;
    wanted.becomes_base = true;
    wanted.context.run = number;
    with.box.parts.disk_.take(wanted, told);
    with.box.run();
    return told;
  };
  const auto live = take().got().id;
  CHECK(with.value("disk_from") == live);
  CHECK(with.it.find().runs.front().state == run_state::running);
  with.it.use(number).got();
  INFO("one that comes too late changes nothing of what the run leaves");
  auto& place = with.box.newest();
  place.hold_snapshot = true;
  auto late = take();
  auto told = with.it.stop(number);
  place.hold_snapshot = false;
  std::swap(place.taking.front(), place.taking.back());
  place.finish_snapshots();
  with.box.run();
  CHECK(late.got().id != told.got().run.snapshot);
  CHECK(with.value("disk_from") == told.got().run.snapshot);
}

TEST_CASE("a run that is lost while it ends has left its disk if that was kept",
          "[parts][runs][snapshots]") {
  const auto was_defined = GENERATE(false, true);
  const auto was_written = GENERATE(false, true);
  if (was_written && !was_defined)
    return;
  box_with_disks with;
  auto& kept = with.box.cluster.kept;
  sandbox_run run{7, run_state::stopping, 1, 2, 3, 0, 60'000};
  run.snapshot = "left";
  kept["run/0000000000000007"] = actors::text_of(run);
  if (was_defined) {
    with.box.snapshots["left"] = snapshot_description{"left", "abc"};
    with.box.engine.snapshots->insert("left");
  }
  if (was_written)
    kept["disk_from"] = kept["disk_of"] = "left";
  const auto found = with.it.find().runs.front();
  CHECK(found.state == (was_defined ? run_state::stopped : run_state::aborted));
  CHECK(found.snapshot == (was_defined ? "left" : ""));
  if (was_defined)
    CHECK(with.resume().got().run.began_with == "left");
  else
    CHECK(with.resume().code() == errc::snapshot_gone);
}

TEST_CASE("a run in the record, and back", "[parts][runs]") {
  sandbox_run run{3, run_state::snapshotting, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto again = [&] { return actors::read_run(3, actors::text_of(run)).value(); };
  CHECK(again().snapshot.empty());
  CHECK(again().bytes_out == 8);
  run.began_with = "one";
  CHECK(again().began_with == "one");
  CHECK(again().snapshot.empty());
  CHECK_FALSE(again().snapshot_keep_ms);
  run.snapshot = "two";
  run.snapshot_keep_ms = 0;
  CHECK(again().snapshot == "two");
  CHECK(again().snapshot_keep_ms == 0);
  CHECK(again().state == run_state::snapshotting);
  CHECK(actors::read_run(3, "3 1 2 3 4 5 6 7 8")->began_with.empty());
}

TEST_CASE("while a run is alive its disk and its image go together", "[parts][runs][snapshots]") {
  box_with_disks with;
  const auto old = with.it.stop(with.it.begin().got().run.number).got().run.snapshot;
  const auto second = with.resume().got().run.number;
  snapshot_description other{"other", "elsewhere"};
  other.image = "another";
  with.box.snapshots["other"] = other;
  const auto image = with.value("image");
  CHECK(with.aim_at("other").got().snapshot == "other");
  CHECK(with.value("disk_from") == old);
  CHECK(with.value("disk_next") == "other");
  CHECK(with.value("image") == image);
  const bool leaves = GENERATE(true, false);
  with.kept.keeps = leaves;
  const auto left = with.it.stop(second).got().run.snapshot;
  if (leaves) {
    CHECK(with.made(left).image == image);
    CHECK(with.value("disk_next").empty());
    CHECK(with.box.released.back() == old);
    CHECK(std::count(with.box.released.begin(), with.box.released.end(), "other") == 1);
  } else {
    CHECK(left.empty());
    with.box.engine.snapshots->insert("other");
    CHECK(with.resume().code() == errc::launch_failed); // There is no such image here.
    CHECK(with.value("image") == "another");
    CHECK(with.value("disk_from") == "other");
    CHECK(with.value("disk_next").empty());
    CHECK(with.box.released.back() == old);
  }
}

TEST_CASE("older snapshots make room once the sandbox stands on the new one",
          "[parts][runs][snapshots]") {
  box_with_disks with;
  const auto first = with.it.begin().got().run.number;
  auto& place = with.box.newest();
  place.hold_snapshot = true;
  auto told = with.it.stop(first);
  CHECK(with.box.evictions.empty());
  place.hold_snapshot = false;
  place.finish_snapshots();
  with.box.run();
  REQUIRE(with.box.evictions.size() == 1);
  CHECK(with.box.evictions.front().keep_last == 2);
  CHECK(told.got().run.state == run_state::stopped);
}

TEST_CASE("what is to be kept while a run leaves its disk is answered with that",
          "[parts][runs][snapshots]") {
  box_with_disks with;
  with.box.fake_world::options->keeps_disks = true;
  const auto first = with.it.begin().got().run.number;
  auto& place = with.box.newest();
  place.hold_snapshot = true;
  auto told = with.it.stop(first);
  owed<caf::ok_atom> kept;
  with.box.parts.persistence_.keep(kept);
  with.box.run();
  CHECK(kept.open());
  place.hold_snapshot = false;
  place.finish_snapshots();
  with.box.run();
  kept.got();
  CHECK(with.box.snapshots.size() == 1);
}

TEST_CASE("a run that was lost is revived by no request of another API", "[parts][runs]") {
  box_with_runs it;
  sandbox_run run{7, run_state::running, 1, 2, 0, 0, 60'000};
  it.box.cluster.kept["run/0000000000000007"] = actors::text_of(run);
  CHECK(it.use().code() == errc::run_over);
  CHECK(it.box.engine.creations.empty());
  CHECK(it.find().runs.front().state == run_state::aborted);
}

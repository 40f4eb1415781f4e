// A sandbox that somebody has paused: it stands still until he resumes it, whatever comes
// meanwhile.
#include "tests/actors/fixture.hpp"
#include "tests/support/metrics_text.hpp"

#include <csignal>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

struct paused_node : small_node {
  paused_node() { options->ladder = {10min, 24h}; }

  sandbox_object_actor box = make_sandbox();

  void use() { sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value(); }
  auto ask_pause() { return sys.ask<sandbox_description>(box, pause_sandbox{true}); }
  auto ask_resume() { return sys.ask<sandbox_description>(box, pause_sandbox{false}); }
  void pause() { REQUIRE(ask_pause().value().paused); }
  void resume() { REQUIRE_FALSE(ask_resume().value().paused); }
  auto run(const char* line = "true") { return sys.ask<process_actor>(box, command(line)); }
  auto ask_look() { return sys.ask<sandbox_description>(box, redefine_sandbox{}); }
  sandbox_description look() {
    return sys.ask<sandbox_description>(box, redefine_sandbox{}).value();
  }
  std::string state() {
    return std::string{sys.ask<sandbox_status>(box, status_atom::value).value().state};
  }
  bool marked() { return !store.value("abc", "paused").empty(); }
  double counted(const char* what) const {
    metrics::text text;
    options->figures->write(text);
    return metrics_page{text.str()}.value(what);
  }
};

/// One that finds the paused sandbox of a server before it.
struct later_node : paused_node {
  later_node() {
    store.disk.commit(
      {"abc", 1, {{"created_ms", "5"}, {"started_ms", "6"}, {"image", "host"}, {"paused", "1"}}},
      [](result<void>) {});
    leases.last = 1;
    kept->frozen = true;
    engine.left["abc"] = kept;
  }

  std::shared_ptr<fake_sandbox> kept = std::make_shared<fake_sandbox>();
};

} // namespace

TEST_CASE("a paused sandbox stands still, and that is durable", "[actors][pause]") {
  paused_node node;
  node.use();
  node.pause();
  CHECK(node.place().frozen);
  CHECK(node.marked());
  CHECK(node.look().paused);
  CHECK(node.state() == "frozen");
  node.resume();
  CHECK_FALSE(node.place().frozen);
  CHECK_FALSE(node.marked());
  CHECK_FALSE(node.look().paused);
  CHECK(node.state() == "running");
  CHECK(node.engine.creations.size() == 1);
}

TEST_CASE("what needs a paused sandbox waits until it is resumed", "[actors][pause]") {
  paused_node node;
  node.use();
  node.pause();
  const auto command = node.run();
  const auto probe = node.sys.ask<bool>(node.box, probe_request{});
  const auto file = node.sys.ask<file_channel>(node.box, read_file_request{"/workspace/a"});
  const auto sockets = node.sys.ask<sandbox_sockets>(node.box, open_sockets_request{});
  const auto found = node.sys.ask<caf::ok_atom>(node.box, find_atom::value, request_context{});
  CHECK(node.place().processes.empty());
  CHECK(node.place().files.empty());
  CHECK(node.place().sockets.empty());
  CHECK(found.open());
  CHECK(node.place().thaws == 0);
  node.resume();
  CHECK(node.place().processes.size() == 2);
  CHECK_NOTHROW(file.value());
  CHECK_NOTHROW(sockets.value());
  CHECK_NOTHROW(found.value());
  CHECK(command.open()); // Until it runs.
  CHECK(probe.open());
}

TEST_CASE("what waits for a resume does not do so for ever, and is not done later",
          "[actors][pause]") {
  paused_node node;
  node.use();
  node.pause();
  const auto first = node.run("first");
  node.sys.advance(limits::pause_patience - 1s);
  const auto second = node.run("second");
  CHECK(first.open());
  node.sys.advance(1s);
  CHECK(first.reason().code == errc::deadline_exceeded);
  CHECK(second.open());
  node.resume();
  REQUIRE(node.place().processes.size() == 1);
  CHECK(node.process().spec.argv.back() == "second");
}

TEST_CASE("a paused sandbox is looked at, changed and measured without going on",
          "[actors][pause]") {
  paused_node node;
  node.use();
  node.pause();
  redefine_sandbox change;
  change.metadata = {"one", "other"};
  CHECK(node.sys.ask<sandbox_description>(node.box, change).value().metadata.at("one") == "other");
  node.place().used.memory_bytes = 4096;
  CHECK(node.sys.ask<sandbox_status>(node.box, status_atom::value).value().memory_bytes == 4096u);
  CHECK(node.sys.ask<network_state>(node.box, get_network_request{}).value().running);
  CHECK_NOTHROW(
    node.sys.ask<network_state>(node.box, set_network_request{egress_policy::deny_all()}).value());
  CHECK(node.place().policies.back() == egress_policy::deny_all());
  CHECK(node.place().thaws == 0);
}

TEST_CASE("a paused sandbox is deleted at once, by whoever asks or when its time is over",
          "[actors][pause]") {
  paused_node node;
  SECTION("by who asks") {
    node.use();
    node.pause();
    const auto waits = node.run();
    CHECK_NOTHROW(
      node.sys.ask<caf::ok_atom>(node.box, delete_atom::value, request_context{}).value());
    CHECK(waits.reason().code == errc::sandbox_not_running);
    CHECK(node.place().destroys == 1);
  }
  SECTION("when its time is over") {
    define_sandbox wanted;
    wanted.expires_ms = node.sys.time.unix_ms() + 60'000;
    node.sys.ask<sandbox_description>(node.box, wanted).value();
    const bool runs = GENERATE(true, false);
    if (runs)
      node.use();
    node.pause();
    node.sys.advance(61s);
    const alarm_due due{{kept_in::cluster, "abc", ""},
                        node.store.value("abc", std::string{actors::alarm_keys})};
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(node.box, due).value());
    if (runs)
      CHECK(node.place().destroys == 1);
  }
  SECTION("before it stands still, and before that is durable") {
    const bool still = GENERATE(false, true);
    node.use();
    node.place().hold_freeze = !still;
    node.store.hold_writes = still;
    const auto asked = node.ask_pause();
    const auto deleted =
      node.sys.ask<caf::ok_atom>(node.box, delete_atom::value, request_context{});
    CHECK(asked.reason().code == errc::sandbox_not_running);
    node.store.let_go();
    node.sys.run();
    CHECK_NOTHROW(deleted.value());
  }
  CHECK(node.store.disk.owners()->empty());
}

TEST_CASE("the ladder leaves a paused sandbox as it is, and begins anew when it is resumed",
          "[actors][pause]") {
  paused_node node;
  node.use();
  const bool idle = GENERATE(false, true); // And frozen for that.
  if (idle)
    node.sys.advance(11min);
  CHECK(node.state() == (idle ? "frozen" : "running"));
  node.pause();
  node.sys.advance(48h);
  CHECK(node.state() == "frozen");
  CHECK(node.place().destroys == 0);
  CHECK(node.place().thaws == 0);
  CHECK(node.local.value("abc", "idle_since").empty());
  node.resume();
  node.sys.advance(9min);
  CHECK(node.state() == "running");
  CHECK(node.counted("insula_sandboxes_frozen_total") == idle);
  CHECK(node.counted("insula_sandboxes_thawed_total") == 0);
  node.sys.advance(2min);
  CHECK(node.state() == "frozen");
}

TEST_CASE("a command that runs, and somebody at a terminal, stand still with it",
          "[actors][pause]") {
  paused_node node;
  const auto started = node.run("sleep 1000");
  node.process().start();
  node.sys.run();
  const auto visitor = node.sys.get().spawn([box = node.box](caf::event_based_actor* self) {
    self->request(box, caf::infinite, open_terminal_request{})
      .then([](const terminal_actor&, std::uint64_t, std::uint64_t) {});
    self->become([](delete_atom) {}); // It stays.
  });
  node.sys.run();
  node.process().start();
  node.sys.run();
  node.pause();
  CHECK(node.place().frozen);
  node.sys.advance(1h);
  CHECK(node.place().thaws == 0);
  CHECK(node.process().signals.empty());
  caf::anon_send_exit(visitor, caf::exit_reason::user_shutdown);
  node.sys.run();
  CHECK(node.place().thaws == 0); // Nor for who leaves.
  node.resume();
  CHECK(node.state() == "running");
  CHECK(node.place().thaws == 1);
}

TEST_CASE("what is about to start in a paused sandbox has its time once that goes on",
          "[actors][pause]") {
  paused_node node;
  const auto starting = node.run();
  caf::anon_send(node.box, open_terminal_request{});
  node.sys.run();
  REQUIRE(node.place().processes.size() == 2);
  node.pause();
  node.sys.advance(1h);
  CHECK(starting.open());
  node.resume();
  for (const auto& each : node.place().processes)
    CHECK(each->signals.empty());
  node.sys.advance(limits::start_patience);
  CHECK(starting.reason().code == errc::launch_failed);
  for (const auto& each : node.place().processes)
    CHECK(each->signals == std::vector<int>{SIGKILL});
}

TEST_CASE("what does not stand still is not paused, and goes on", "[actors][pause]") {
  paused_node node;
  node.use();
  node.place().hold_freeze = true;
  const auto asked = node.ask_pause();
  const auto meanwhile = node.run();
  CHECK(asked.open());
  CHECK_FALSE(node.look().paused);
  CHECK(node.place().processes.empty());
  SECTION("since it could not be stopped") {
    node.place().finish_freeze(false);
    node.sys.run();
    CHECK(asked.reason().code == errc::io_failed);
    CHECK(node.place().processes.size() == 1);
    CHECK(node.state() == "running");
    node.place().hold_freeze = false;
    node.pause(); // The next one may have more luck.
  }
  SECTION("since the disk refuses") {
    node.store.write_error = error{errc::store_failed, "no"};
    node.place().finish_freeze(true);
    node.sys.run();
    CHECK(asked.reason().code == errc::store_failed);
    CHECK_FALSE(node.place().frozen);
    CHECK(node.place().processes.size() == 1);
    CHECK_FALSE(node.look().paused);
  }
  SECTION("since it has ended") {
    node.engine.creations[0].end();
    node.sys.run();
    CHECK(asked.reason().code == errc::sandbox_not_running);
    CHECK(node.engine.creations.size() == 2);
    CHECK(node.engine.creations[1].place->processes.size() == 1); // What waited is for the next.
    CHECK_FALSE(node.look().paused);
  }
  CHECK(node.counted("insula_sandboxes_not_frozen_total") == 0);
}

TEST_CASE("a sandbox that does not go on says so, and the next request tries again",
          "[actors][pause]") {
  paused_node node;
  node.use();
  node.pause();
  const auto waits = node.run();
  SECTION("since the disk refuses: it stays paused") {
    node.store.write_error = error{errc::disk_full, "no"};
    CHECK(node.ask_resume().reason().code == errc::disk_full);
    CHECK(node.look().paused);
    CHECK(waits.open());
    node.store.write_error = std::nullopt;
    node.resume();
  }
  SECTION("since it cannot be thawed") {
    node.place().refuse_thaw = true;
    CHECK(node.ask_resume().reason().code == errc::io_failed);
    CHECK(waits.reason().code == errc::io_failed);
    CHECK_FALSE(node.look().paused);
    node.place().refuse_thaw = false;
    node.use();
  }
  CHECK(node.state() == "running");
}

TEST_CASE("nothing is paused or resumed twice, and nobody is told before it is durable",
          "[actors][pause]") {
  paused_node node;
  CHECK_FALSE(node.ask_pause().value().exists);
  CHECK_FALSE(node.ask_resume().value().exists);
  CHECK_FALSE(node.marked());
  node.use();
  CHECK(node.ask_resume().reason().code == errc::invalid_request);
  node.store.hold_writes = true;
  const auto asked = node.ask_pause();
  CHECK(node.place().frozen);
  CHECK(asked.open());
  const auto looked = node.ask_look();
  CHECK(looked.open());
  CHECK(node.ask_pause().reason().code == errc::invalid_request);
  CHECK(node.ask_resume().reason().code == errc::invalid_request);
  node.store.let_go();
  node.sys.run();
  CHECK(asked.value().paused);
  CHECK(looked.value().paused);
  CHECK(node.ask_pause().reason().code == errc::invalid_request);
  node.store.hold_writes = true;
  const auto again = node.ask_resume();
  CHECK(node.place().frozen);
  const auto looked_again = node.ask_look();
  CHECK(looked_again.open());
  CHECK(node.ask_resume().reason().code == errc::invalid_request);
  node.store.let_go();
  node.sys.run();
  CHECK_FALSE(again.value().paused);
  CHECK_FALSE(looked_again.value().paused);
  CHECK(node.place().freezes == 1);
}

TEST_CASE("a sandbox that sleeps is paused without being started", "[actors][pause]") {
  paused_node node;
  SECTION("it was never started") {
    node.sys.ask<sandbox_description>(node.box, define_sandbox{}).value();
  }
  SECTION("it has ended") {
    node.use();
    node.engine.creations[0].end();
    node.sys.run();
    REQUIRE(node.state() == "asleep");
  }
  SECTION("it ends while it is paused") {
    node.use();
    node.pause();
    node.engine.creations[0].end();
    node.sys.run();
    node.resume();
  }
  const auto before = node.engine.creations.size();
  node.pause();
  CHECK(node.state() == "asleep");
  CHECK(node.leases.held.empty());
  const auto waits = node.run();
  const auto gives_up = node.run();
  CHECK(node.engine.creations.size() == before);
  node.resume();
  CHECK(node.engine.creations.size() == before + 1);
  CHECK(node.place().processes.size() == 2);
  CHECK_FALSE(node.place().frozen);
  CHECK(node.leases.held.count("abc") == 1);
}

TEST_CASE("an activation that finds its sandbox paused starts nothing", "[actors][pause]") {
  paused_node node;
  node.store.disk.commit(
    {"abc", 1, with_line({{"created_ms", "5"}, {"started_ms", "6"}, {"paused", "1"}})},
    [](result<void>) {});
  const auto directory = node.make_directory();
  const auto waits =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, "abc", request_context{});
  CHECK(node.engine.creations.empty());
  CHECK(node.sys.ask<sandbox_page>(directory, list_sandboxes{{}, 10})
          .value()
          .sandboxes.at(0)
          .is.paused);
  SECTION("until it is resumed") {
    const auto box =
      node.sys.ask<sandbox_actor>(directory, reach_atom::value, "abc", request_context{}).value();
    CHECK_FALSE(node.sys.ask<sandbox_description>(box, pause_sandbox{false}).value().paused);
    CHECK_NOTHROW(waits.value());
    CHECK(node.engine.creations.size() == 1);
  }
  SECTION("and who has waited for long enough is refused") {
    node.sys.advance(limits::pause_patience);
    CHECK(waits.reason().code == errc::deadline_exceeded);
    CHECK(node.engine.creations.empty());
  }
}

TEST_CASE("a pause waits for the start, and for those who asked before it", "[actors][pause]") {
  paused_node node;
  node.engine.ready_at_once = false;
  const auto first = node.run("first");
  const auto paused = node.ask_pause();
  const auto second = node.run("second");
  CHECK(paused.open());
  SECTION("of one that starts") {
    node.engine.creations[0].ready();
    node.sys.run();
    CHECK(paused.value().paused);
    CHECK(node.place().frozen);
    REQUIRE(node.place().processes.size() == 1);
    CHECK(node.process().spec.argv.back() == "first");
    node.resume();
    CHECK(node.process().spec.argv.back() == "second");
  }
  SECTION("of one that does not") {
    node.engine.creations[0].fail("no");
    node.sys.run();
    CHECK(paused.reason().code == errc::launch_failed);
    CHECK(second.reason().code == errc::launch_failed);
    CHECK_FALSE(node.marked());
  }
}

TEST_CASE("a sandbox that was on its way to be frozen for being idle is paused by that",
          "[actors][pause]") {
  paused_node node;
  node.use();
  node.place().hold_freeze = true;
  node.sys.advance(11min);
  const auto asked = node.ask_pause();
  CHECK(asked.open());
  node.place().finish_freeze(true);
  node.sys.run();
  CHECK(asked.value().paused);
  CHECK(node.place().freezes == 1);
}

TEST_CASE("one that was paused under an earlier server is so under the next",
          "[actors][pause][adoption]") {
  later_node node;
  SECTION("adopted, it stands still before anything runs in it") {
    caf::anon_send(node.box, adopt_atom::value);
    node.sys.run();
    const auto waits = node.run();
    CHECK(node.look().paused);
    CHECK(node.state() == "frozen");
    node.sys.advance(1s);
    CHECK(node.kept->processes.empty());
    CHECK(node.kept->thaws == 0);
    node.resume();
    CHECK(node.kept->processes.size() == 1);
  }
  SECTION("the first request adopts it, and waits") {
    const auto waits = node.run();
    CHECK(node.engine.adoptions.size() == 1);
    CHECK(node.state() == "frozen");
    CHECK(node.kept->thaws == 0);
    node.sys.advance(limits::pause_patience);
    CHECK(waits.reason().code == errc::deadline_exceeded);
    node.resume();
  }
  SECTION("one that does not stand still is frozen until it does") {
    node.kept->hold_freeze = true;
    caf::anon_send(node.box, adopt_atom::value);
    node.sys.run();
    node.kept->finish_freeze(false);
    node.sys.run();
    const auto waits = node.run();
    CHECK(node.kept->processes.empty());
    node.kept->hold_freeze = false;
    node.sys.advance(20s);
    CHECK(node.state() == "frozen");
    node.resume();
    CHECK(node.kept->processes.size() == 1);
  }
  SECTION("one that is resumed while it is adopted goes on") {
    node.engine.ready_at_once = false;
    caf::anon_send(node.box, adopt_atom::value);
    node.sys.run();
    const bool durable_first = GENERATE(true, false);
    node.store.hold_writes = !durable_first;
    const auto resumed = node.ask_resume();
    node.engine.adoptions[0].ready();
    node.sys.run();
    node.store.let_go();
    node.sys.run();
    CHECK_FALSE(resumed.value().paused);
  }
  CHECK(node.state() == "running");
  CHECK_FALSE(node.kept->frozen);
  CHECK(node.engine.creations.empty());
}

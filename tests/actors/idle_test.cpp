// The ladder that a sandbox goes down when nobody uses it, and what keeps it on top.
#include "tests/actors/fixture.hpp"
#include "tests/support/metrics_text.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;
using actors::idle_step;
using actors::phase;

namespace {

struct idle_node : small_node {
  idle_node() { options->ladder = {10min, 24h}; }

  ~idle_node() {
    for (const auto& each : visitors)
      caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
  }

  sandbox_object_actor box = make_sandbox();
  std::vector<caf::actor> visitors;

  void use() { sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value(); }
  std::string state() {
    return std::string{sys.ask<sandbox_status>(box, status_atom::value).value().state};
  }
  void frozen() {
    use();
    sys.advance(11min);
    REQUIRE(state() == "frozen");
  }
  double counted(const char* what) const {
    metrics::text text;
    options->figures->write(text);
    return metrics_page{text.str()}.value(what);
  }
};

/// Somebody at the terminal of a session, until it is told to leave.
caf::actor visitor(idle_node& node, const std::shared_ptr<terminal_actor>& joined) {
  auto made = node.sys.get().spawn([box = node.box, joined](caf::event_based_actor* self) {
    self->request(box, caf::infinite, open_terminal_request{})
      .then([joined](const terminal_actor& terminal, std::uint64_t, std::uint64_t) {
        *joined = terminal;
      });
    self->become([](delete_atom) {}); // It stays.
  });
  node.visitors.push_back(made);
  node.sys.run();
  return made;
}

void leave(idle_node& node, const caf::actor& who) {
  caf::anon_send_exit(who, caf::exit_reason::user_shutdown);
  node.sys.run();
}

} // namespace

TEST_CASE("what is due for a sandbox follows from its phase and how long it has been idle",
          "[actors][idle]") {
  const actors::idle_ladder both{10min, 24h}, stops{0min, 24h}, freezes{10min, 0h}, never{};
  using actors::step_due;
  CHECK(step_due(both, phase::running, 10min - 1ns) == idle_step::none);
  CHECK(step_due(both, phase::running, 10min) == idle_step::freeze);
  CHECK(step_due(both, phase::frozen, 23h) == idle_step::none);
  CHECK(step_due(both, phase::frozen, 24h) == idle_step::stop);
  CHECK(step_due(both, phase::running, 24h) == idle_step::stop); // It could not be frozen.
  CHECK(step_due(stops, phase::running, 23h) == idle_step::none);
  CHECK(step_due(stops, phase::running, 24h) == idle_step::stop);
  CHECK(step_due(freezes, phase::frozen, 9999h) == idle_step::none);
  CHECK(step_due(never, phase::running, 9999h) == idle_step::none);
  for (const auto other : {phase::asleep, phase::starting, phase::stopping, phase::deleting})
    CHECK(step_due(both, other, 9999h) == idle_step::none);
  // The two at the same time: the contract's idle limit, which needs no freezing before.
  CHECK(step_due({10min, 10min}, phase::running, 10min) == idle_step::stop);

  using actors::until_next_step;
  CHECK(until_next_step(both, 0ns) == 10min);
  CHECK(until_next_step(both, 4min) == 6min);
  CHECK(until_next_step(both, 10min) == 24h - 10min);
  CHECK_FALSE(until_next_step(both, 24h));
  CHECK(until_next_step(stops, 0ns) == 24h);
  CHECK_FALSE(until_next_step(freezes, 10min));
  CHECK_FALSE(until_next_step(never, 0ns));
}

TEST_CASE("an idle sandbox is frozen, any request thaws it, and after a day it is stopped",
          "[actors][idle]") {
  idle_node node;
  node.use();
  node.sys.advance(9min);
  CHECK(node.state() == "running");
  node.sys.advance(2min);
  CHECK(node.state() == "frozen");
  CHECK(node.place().frozen);

  node.use();
  CHECK(node.state() == "running");
  CHECK_FALSE(node.place().frozen);
  node.sys.advance(9min);
  CHECK(node.state() == "running"); // It is counted from that request on.
  node.sys.advance(2min);
  CHECK(node.state() == "frozen");

  node.sys.advance(23h);
  CHECK(node.place().destroys == 0);
  node.sys.advance(1h);
  CHECK(node.place().destroys == 1);
  CHECK(node.state() == "asleep");
  CHECK(node.place().freezes == 2);
  CHECK(node.place().thaws == 1);
  CHECK(node.counted("insula_sandboxes_frozen_total") == 2);
  CHECK(node.counted("insula_sandboxes_thawed_total") == 1);
  CHECK(node.counted("insula_sandbox_thaw_seconds_count") == 1);
  node.use();
  CHECK(node.engine.creations.size() == 2);
}

TEST_CASE("whatever needs the inside of a frozen sandbox thaws it first", "[actors][idle]") {
  idle_node node;
  node.frozen();
  bool thawed_before = false;
  SECTION("a command") {
    node.sys.ask<process_actor>(node.box, command("true"));
    thawed_before = !node.place().processes.empty();
  }
  SECTION("a probe") {
    node.sys.ask<bool>(node.box, probe_request{});
    thawed_before = !node.place().processes.empty();
  }
  SECTION("a file") {
    CHECK(node.sys.ask<file_channel>(node.box, read_file_request{"/workspace/a"}).value().socket);
    thawed_before = !node.place().files.empty();
  }
  SECTION("a tree") {
    CHECK(node.sys.ask<file_channel>(node.box, write_tree_request{"/workspace"}).value().socket);
    thawed_before = !node.place().files.empty();
  }
  SECTION("a session") {
    node.sys.ask<caf::ok_atom>(node.box, create_session_request{"s"});
    thawed_before = !node.place().shells.empty();
  }
  SECTION("the end of a session") {
    node.sys.ask<caf::ok_atom>(node.box, delete_session_request{"none"});
    thawed_before = true;
  }
  SECTION("a terminal") {
    const auto somebody = visitor(node, std::make_shared<terminal_actor>());
    thawed_before = !node.place().processes.empty();
    node.process().start();
    leave(node, somebody);
  }
  CHECK(thawed_before);
  CHECK_FALSE(node.place().frozen);
  CHECK(node.place().thaws == 1);
  CHECK(node.state() == "running");
}

TEST_CASE("to look at a frozen sandbox does not thaw it", "[actors][idle]") {
  idle_node node;
  node.frozen();
  node.place().used.memory_bytes = 4096;
  const auto row = node.sys.ask<sandbox_status>(node.box, status_atom::value).value();
  CHECK(row.memory_bytes == 4096u);
  CHECK(row.state == "frozen");
  CHECK(node.place().thaws == 0);
}

TEST_CASE("a running command keeps its sandbox from being frozen, however it was begun",
          "[actors][idle]") {
  idle_node node;
  const bool in_session = GENERATE(false, true);
  auto wanted = command("sleep 10000");
  wanted.session = in_session ? "s" : "";
  const auto started = node.sys.ask<process_actor>(node.box, wanted);
  if (in_session) {
    node.place().shells.at(0)->ready();
    node.sys.run();
  }
  auto& running =
    in_session ? *node.place().shells.at(0)->processes.at(0) : *node.place().processes.at(0);
  running.start();
  node.sys.run();
  for (int i = 0; i < 5; ++i)
    node.sys.advance(11min);
  CHECK(node.state() == "running");
  running.exit(0);
  node.sys.advance(11min);
  node.sys.advance(11min);
  CHECK(node.state() == "running"); // What it has begun still prints.
  running.complete_now();
  node.sys.run();
  node.sys.advance(9min);
  CHECK(node.state() == "running");
  node.sys.advance(2min);
  CHECK(node.state() == "frozen");
}

TEST_CASE("a shell that starts slowly is a request under way, and an idle one is none",
          "[actors][idle]") {
  idle_node node;
  const auto made = node.sys.ask<caf::ok_atom>(node.box, create_session_request{"s"});
  node.sys.advance(11min);
  node.sys.advance(11min);
  CHECK(node.state() == "running");
  node.place().shells.at(0)->ready();
  node.sys.run();
  CHECK_NOTHROW(made.value());
  node.sys.advance(11min);
  CHECK(node.state() == "frozen");
}

TEST_CASE(
  "a terminal with a client keeps its sandbox awake, one without stays open in a frozen one",
  "[actors][idle]") {
  idle_node node;
  const auto joined = std::make_shared<terminal_actor>();
  const auto first = visitor(node, joined);
  REQUIRE(node.place().processes.size() == 1);
  node.process().start();
  node.process().print(output_stream::out, "$ ");
  node.sys.run();
  REQUIRE(*joined);
  for (int i = 0; i < 3; ++i)
    node.sys.advance(11min);
  CHECK(node.state() == "running");
  leave(node, first);
  node.sys.advance(11min);
  CHECK(node.state() == "frozen");
  CHECK(node.process().signals.empty());
  // What it has printed can be had again, and what is typed reaches it.
  *joined = nullptr;
  const auto second = visitor(node, joined);
  CHECK(node.state() == "running");
  CHECK(node.place().processes.size() == 1);
  REQUIRE(*joined);
  CHECK(node.sys.ask<output_chunk>(*joined, read_output{0, 1024, false}).value().frames.size() ==
        1);
  node.sys.ask<caf::ok_atom>(*joined, write_input{"ls\n"}).value();
  CHECK(node.process().typed == "ls\n");
  leave(node, second);
  *joined = nullptr;
}

TEST_CASE("a file that is being carried keeps its sandbox from being frozen", "[actors][idle]") {
  idle_node node;
  auto channel =
    node.sys.ask<file_channel>(node.box, read_file_request{"/workspace/large"}).value();
  node.sys.advance(25min);
  CHECK(node.state() == "running");
  channel = {};
  node.sys.run();
  node.sys.advance(25min);
  CHECK(node.state() == "frozen");
}

TEST_CASE("a request that meets a sandbox on its way to stand still keeps it running",
          "[actors][idle]") {
  idle_node node;
  node.use();
  node.place().hold_freeze = true;
  node.sys.advance(11min);
  CHECK(node.state() == "running"); // Until it does stand still.
  node.use();
  CHECK_FALSE(node.place().frozen);
  node.place().finish_freeze(true); // Too late: nobody believes that any more.
  node.place().frozen = false;
  node.sys.run();
  CHECK(node.state() == "running");
  CHECK(node.counted("insula_sandboxes_thawed_total") == 0);
  node.place().hold_freeze = false;
  node.sys.advance(11min);
  CHECK(node.state() == "frozen");
}

TEST_CASE("one that cannot be frozen is left running until it has been used again, and is stopped",
          "[actors][idle]") {
  idle_node node;
  node.use();
  node.place().hold_freeze = true;
  node.sys.advance(11min);
  node.place().finish_freeze(false);
  node.sys.run();
  for (int i = 0; i < 5; ++i)
    node.sys.advance(11min);
  CHECK(node.state() == "running");
  CHECK(node.place().freezes == 1);
  CHECK(node.counted("insula_sandboxes_not_frozen_total") == 1);
  node.use();
  node.sys.advance(11min);
  CHECK(node.place().freezes == 2);
  node.place().finish_freeze(false);
  node.sys.run();
  node.sys.advance(24h);
  CHECK(node.place().destroys == 1);
}

TEST_CASE("a sandbox that will not be thawed refuses, and the next request tries again",
          "[actors][idle]") {
  idle_node node;
  node.frozen();
  node.place().refuse_thaw = true;
  CHECK(node.sys.ask<process_actor>(node.box, command("true")).reason().code == errc::io_failed);
  CHECK(node.state() == "frozen");
  CHECK(node.place().processes.empty());
  node.place().refuse_thaw = false;
  node.use();
  CHECK(node.state() == "running");
}

TEST_CASE("a frozen sandbox can be deleted, and one that ends is made anew", "[actors][idle]") {
  idle_node node;
  node.frozen();
  SECTION("deleted") {
    CHECK_NOTHROW(
      node.sys.ask<caf::ok_atom>(node.box, delete_atom::value, request_context{}).value());
    CHECK(node.place().destroys == 1);
    CHECK(node.place().thaws == 0); // That is its makers' business.
    CHECK(node.store.disk.owners()->empty());
  }
  SECTION("its first process was killed") {
    node.engine.creations[0].end();
    node.sys.run();
    CHECK(node.state() == "asleep");
    node.use();
    CHECK(node.engine.creations.size() == 2);
    CHECK(node.state() == "running");
  }
}

TEST_CASE("a ladder without steps does nothing, and either step stands alone", "[actors][idle]") {
  idle_node node;
  SECTION("never") {
    node.options->ladder = {};
    node.use();
    node.sys.advance(9999h);
    CHECK(node.state() == "running");
    CHECK(node.place().freezes == 0);
  }
  SECTION("frozen, and never stopped") {
    node.options->ladder = {10min, 0h};
    node.frozen();
    node.sys.advance(9999h);
    CHECK(node.state() == "frozen");
    node.use();
    node.sys.advance(11min);
    CHECK(node.state() == "frozen");
  }
  SECTION("stopped, and never frozen") {
    node.options->ladder = {0min, 10min};
    node.use();
    node.sys.advance(11min);
    CHECK(node.state() == "asleep");
    CHECK(node.place().freezes == 0);
  }
}

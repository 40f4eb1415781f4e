#include "actors/survivor_note.hpp"
#include "tests/actors/fixture.hpp"

#include <algorithm>
#include <csignal>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;
using actors::survivor_note;
using runtime::survivor;
using runtime::survivor_kind;

namespace {

survivor left(std::uint64_t id, survivor_kind kind, const survivor_note& note,
              std::uint64_t shell = 0) {
  return {id, kind, note.label(), shell};
}

survivor_note of_session(std::string session) {
  survivor_note note;
  note.session = std::move(session);
  return note;
}

/// A node that finds the sandbox "abc" of a server before it.
struct later_node : small_node {
  explicit later_node(std::vector<survivor> what = {}, bool recorded = true) {
    if (recorded)
      store.disk.commit(
        {"abc", 1, with_line({{"created_ms", "5"}, {"started_ms", "6"}, {"image", "host"}})},
        [](result<void>) {});
    leases.last = 1;
    kept->left = std::move(what);
    engine.left["abc"] = kept;
  }

  std::shared_ptr<fake_sandbox> kept = std::make_shared<fake_sandbox>();
};

} // namespace

TEST_CASE("a label is read as it was written, and nothing else is one", "[actors][adoption]") {
  survivor_note note;
  note.session = "s";
  note.first = false;
  note.timeout_ms = 5000;
  note.deadline = std::chrono::steady_clock::time_point{123'456ms};
  const auto again = survivor_note::read(note.label());
  REQUIRE(again);
  CHECK(again->session == "s");
  CHECK_FALSE(again->first);
  CHECK(again->timeout_ms == 5000);
  CHECK(again->deadline == note.deadline);
  CHECK(survivor_note::read(survivor_note{}.label()));
  for (const auto* each :
       {"", "1", "2\ns\n1\n\n", "1\ns\n1\nx\n", "1\ns\n1\n5\n6\n7", "1\ns\n1\n5"})
    CHECK_FALSE(survivor_note::read(each));
}

TEST_CASE("what an earlier server has left is taken over, not made again", "[actors][adoption]") {
  later_node node{
    {left(1, survivor_kind::command, {}), left(2, survivor_kind::terminal, of_session("t"))}};
  const auto box = node.make_sandbox();
  caf::anon_send(box, adopt_atom::value);
  node.sys.run();
  CHECK(node.engine.creations.empty());
  REQUIRE(node.engine.adoptions.size() == 1);
  CHECK(node.engine.adoptions[0].spec.epoch == node.leases.held.at("abc"));
  CHECK(node.kept->taken.size() == 2);
  const auto row = node.sys.ask<sandbox_status>(box, status_atom::value).value();
  CHECK(row.state == "running");
  CHECK(row.terminals == 1);
  CHECK(row.created_ms == 5);
  CHECK(node.store.writes == 0); // Nothing has changed.
  CHECK(node.leases.held.count("abc") == 1);
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value());
  CHECK(node.engine.adoptions.size() == 1);
}

TEST_CASE("the first request takes it over if nobody has", "[actors][adoption]") {
  later_node node;
  node.engine.ready_at_once = false;
  const auto box = node.make_sandbox();
  const auto asked = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  REQUIRE(node.engine.adoptions.size() == 1);
  caf::anon_send(box, adopt_atom::value);
  node.sys.run();
  CHECK(asked.open());
  node.engine.adoptions[0].ready();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
  CHECK(node.engine.adoptions.size() == 1);
  CHECK(node.engine.creations.empty());
}

TEST_CASE("a sandbox that nobody was told of is ended", "[actors][adoption]") {
  later_node node{{}, false};
  const auto box = node.make_sandbox();
  SECTION("and nothing is made in its place") {
    caf::anon_send(box, adopt_atom::value);
    node.sys.run();
    CHECK(node.engine.creations.empty());
    CHECK(node.leases.held.empty());
  }
  SECTION("but for who asks") {
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value());
    CHECK(node.engine.creations.size() == 1);
  }
  CHECK(node.engine.disowned == std::vector<std::string>{"abc"});
  CHECK(node.engine.adoptions.empty());
}

TEST_CASE("a sandbox that is deleted before it was taken over is ended, with its record",
          "[actors][adoption]") {
  later_node node;
  const auto box = node.make_sandbox();
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value());
  CHECK(node.engine.disowned == std::vector<std::string>{"abc"});
  CHECK(node.store.value("abc", "created_ms").empty());
}

TEST_CASE("what carries no label of ours is ended, and so is the older of two of one session",
          "[actors][adoption]") {
  later_node node{{{1, survivor_kind::command, "?", 0},
                   left(2, survivor_kind::shell, of_session("s")),
                   left(3, survivor_kind::shell, of_session("s")),
                   left(4, survivor_kind::shell_command, of_session("s"), 2),
                   left(5, survivor_kind::terminal, of_session("s")),
                   left(6, survivor_kind::terminal, of_session("s"))}};
  const auto box = node.make_sandbox();
  caf::anon_send(box, adopt_atom::value);
  node.sys.run();
  auto taken = node.kept->taken, disowned = node.kept->disowned;
  std::sort(taken.begin(), taken.end());
  std::sort(disowned.begin(), disowned.end());
  CHECK(taken == std::vector<std::uint64_t>{3, 6});
  CHECK(disowned == std::vector<std::uint64_t>{1, 2, 4, 5});
}

TEST_CASE("a program's terminal is hung up, since its client is gone", "[actors][adoption]") {
  later_node node{{left(1, survivor_kind::terminal, of_session("program/x"))}};
  const auto box = node.make_sandbox();
  caf::anon_send(box, adopt_atom::value);
  node.sys.run();
  CHECK(node.kept->taken == std::vector<std::uint64_t>{1});
  REQUIRE(node.kept->processes.size() == 1);
  CHECK(node.kept->processes[0]->signals == std::vector<int>{SIGHUP});
  CHECK(node.sys.ask<sandbox_status>(box, status_atom::value).value().terminals == 0);
  node.sys.advance(limits::kill_grace);
  CHECK(node.kept->processes[0]->signals.back() == SIGKILL);
}

TEST_CASE("a session goes on with its shell, after the command that runs there",
          "[actors][adoption]") {
  later_node node{{left(2, survivor_kind::shell, of_session("s")),
                   left(3, survivor_kind::shell_command, of_session("s"), 2)}};
  const auto box = node.make_sandbox();
  caf::anon_send(box, adopt_atom::value);
  node.sys.run();
  REQUIRE(node.kept->shells.size() == 1);
  REQUIRE(node.kept->processes.size() == 1);
  node.kept->shells[0]->ready();
  auto wanted = command("echo next");
  wanted.session = "s";
  const auto asked = node.sys.ask<process_actor>(box, wanted);
  CHECK(node.kept->shells[0]->commands.empty()); // It waits for its turn.
  node.kept->processes[0]->start();
  node.kept->processes[0]->exit(0);
  node.kept->processes[0]->complete_now();
  node.sys.run();
  REQUIRE(node.kept->shells[0]->commands.size() == 1);
  CHECK(node.kept->shells[0]->commands[0].script == "echo next");
  node.kept->shells[0]->processes[0]->start();
  node.sys.run();
  CHECK(asked.value());
  CHECK(node.kept->shells.size() == 1);
}

TEST_CASE("a command that was taken over has the rest of its time", "[actors][adoption]") {
  survivor_note note;
  note.timeout_ms = 60'000;
  note.deadline = std::chrono::steady_clock::now() - 1s;
  later_node node{{left(1, survivor_kind::command, note)}};
  const auto box = node.make_sandbox();
  caf::anon_send(box, adopt_atom::value);
  node.sys.run();
  node.kept->processes[0]->start();
  node.sys.run();
  node.sys.advance(10ms);
  CHECK(node.kept->processes[0]->signals == std::vector<int>{SIGTERM});
}

TEST_CASE("the directory wakes what has a name that is an id, and ends the rest",
          "[actors][adoption]") {
  later_node node;
  node.engine.left["No Id"] = std::make_shared<fake_sandbox>();
  const auto directory = node.make_directory();
  for (const auto& name : node.engine.survivors())
    caf::anon_send(directory, adopt_atom::value, name);
  node.sys.run();
  CHECK(node.engine.adoptions.size() == 1);
  CHECK(node.engine.disowned == std::vector<std::string>{"No Id"});
  const auto rows =
    node.sys.ask<activation_page>(directory, list_activations{0, 256}).value().sandboxes;
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].id == "abc");
  CHECK(rows[0].state == "running");
}

TEST_CASE("what was there already counts, also above the limit", "[actors][adoption]") {
  later_node node;
  node.options->instances = std::make_shared<actors::instance_count>(1);
  const auto other = node.make_sandbox("other");
  node.sys.ask<caf::ok_atom>(other, find_atom::value, request_context{}).value();
  const auto box = node.make_sandbox();
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value());
  const auto third = node.make_sandbox("third");
  CHECK(node.sys.ask<caf::ok_atom>(third, find_atom::value, request_context{}).reason().code ==
        errc::capacity_exceeded);
}

TEST_CASE("a sandbox that was idle under an earlier server is so under the next",
          "[actors][adoption][idle]") {
  later_node node;
  node.options->ladder = {10min, 24h};
  const auto noted = [&](std::chrono::nanoseconds idle, const std::string& start,
                         const std::string& boot) {
    const auto since = node.sys.time.now() - idle;
    node.local.disk.commit(
      {"abc",
       1,
       {{"idle_since",
         start + " " + std::to_string(since.time_since_epoch().count()) + " " + boot}}},
      [](result<void>) {});
  };
  const auto state = [&](const sandbox_object_actor& box) {
    return std::string{node.sys.ask<sandbox_status>(box, status_atom::value).value().state};
  };
  const auto note = [&] { return node.local.disk.read("abc", "idle_since")->size(); };

  SECTION("it freezes at once, and is stopped when its day is over") {
    noted(23h, "6", node.sys.time.boot());
    const auto box = node.make_sandbox();
    caf::anon_send(box, adopt_atom::value);
    node.sys.run();
    CHECK(state(box) == "frozen");
    node.sys.advance(59min);
    CHECK(state(box) == "frozen");
    node.sys.advance(2min);
    CHECK(node.kept->destroys == 1);
  }
  SECTION("a request begins its clock anew") {
    noted(23h, "6", node.sys.time.boot());
    const auto box = node.make_sandbox();
    node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
    CHECK(state(box) == "running");
    node.sys.advance(2h);
    CHECK(state(box) == "frozen");
    CHECK(node.kept->destroys == 0);
  }
  SECTION("so does one that comes later, and it is not there for a third server") {
    noted(23h, "6", node.sys.time.boot());
    const auto box = node.make_sandbox();
    caf::anon_send(box, adopt_atom::value);
    node.sys.run();
    node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
    CHECK(state(box) == "running");
    CHECK(note() == 0);
    node.sys.advance(2h);
    CHECK(state(box) == "frozen");
    CHECK(note() == 1);
  }
  SECTION("what is noted of another start, or of another boot, or is no note, is nothing") {
    const std::string text = GENERATE("7", "6x", "");
    text.empty() ? noted(23h, "6", "another") : noted(23h, text, node.sys.time.boot());
    const auto box = node.make_sandbox();
    caf::anon_send(box, adopt_atom::value);
    node.sys.run();
    CHECK(state(box) == "running");
    node.sys.advance(2h);
    CHECK(state(box) == "frozen");
    CHECK(node.kept->destroys == 0);
  }
}

namespace {

/// Of a sandbox that an earlier server has left, and whose record cannot be read.
struct unadopted_node : small_node {
  node_directory_actor directory = make_directory();

  unadopted_node() {
    engine.left["abc"] = std::make_shared<fake_sandbox>();
    store.read_error = error{errc::node_unreachable, "not now"};
    caf::anon_send(directory, adopt_atom::value, std::string{"abc"});
    sys.run();
    REQUIRE(engine.left.size() == 1);
  }
};

} // namespace

TEST_CASE("what nobody could adopt ends when its node loses all it had", "[actors][adoption]") {
  unadopted_node node;
  node.sys.ask<caf::ok_atom>(node.directory, evict_atom::value).value();
  CHECK(node.engine.left.empty());
  CHECK(node.engine.disowned == std::vector<std::string>{"abc"});
}

TEST_CASE("what nobody could adopt is not handed over as if it were not there",
          "[actors][adoption]") {
  unadopted_node node;
  const auto handed = [&] {
    return node.sys.ask<caf::ok_atom>(node.directory, hand_over_atom::value, std::string{"abc"});
  };
  CHECK(handed().reason().code == errc::limit_reached);
  CHECK(node.engine.left.size() == 1);
  node.store.read_error.reset();
  node.sys.advance(1s);
  CHECK(handed().reason().code == errc::limit_reached); // Now it is looked at: it has no record,
  handed().value();                                     // and is ended.
  CHECK(node.engine.disowned == std::vector<std::string>{"abc"});
}

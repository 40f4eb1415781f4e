#include "actors/session.hpp"
#include "base/limits.hpp"
#include "tests/actors/fixture.hpp"

#include <csignal>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// A sandbox that runs, and its sessions.
struct session_node : small_node {
  sandbox_actor box = make_sandbox();

  fake_shell& shell(std::size_t i = 0) { return *place().shells.at(i); }
  pending<process_actor> exec(std::string line, std::string session = "s",
                              std::optional<std::int64_t> timeout_ms = {}, std::string cwd = {}) {
    auto wanted = command(std::move(line));
    wanted.session = std::move(session);
    wanted.timeout_ms = timeout_ms;
    wanted.cwd = std::move(cwd);
    return sys.ask<process_actor>(box, wanted);
  }
  pending<caf::ok_atom> create(create_session_request wanted) {
    return sys.ask<caf::ok_atom>(box, std::move(wanted));
  }
  pending<caf::ok_atom> remove(std::string id) {
    return sys.ask<caf::ok_atom>(box, delete_session_request{std::move(id)});
  }
  pending<output_chunk> read(const process_actor& from, std::uint64_t offset = 0) {
    return sys.ask<output_chunk>(from, read_output{offset, 1024, true});
  }
  void ready(std::size_t i = 0) {
    shell(i).ready();
    sys.run();
  }
  fake_process& running(std::size_t i = 0) { return *shell(i).processes.back(); }
  void start(std::size_t i = 0) {
    running(i).start();
    sys.run();
  }
  void finish(int status, std::size_t i = 0) {
    running(i).exit(status);
    running(i).complete_now();
    sys.run();
  }
};

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

} // namespace

TEST_CASE("a session is made with its directory and variables, and answers when its shell is up",
          "[actors][session]") {
  session_node n;
  const auto made = n.create({"s", "/build", {{"A", "1"}, {"HOME", "/other"}}});
  CHECK(made.open());
  const auto& spec = n.shell().spec;
  CHECK(spec.program == "/bin/bash");
  CHECK(spec.cwd == "/build");
  CHECK(has(spec.env, "A=1"));
  CHECK(has(spec.env, "HOME=/other"));
  CHECK(has(spec.env, "LC_ALL=C.UTF-8"));
  CHECK(n.create({"s"}).reason().code == errc::already_exists);
  n.ready();
  CHECK(made.value() == caf::ok_atom::value);
  CHECK(n.create({"s"}).reason().message == "Session 's' already exists");
}

TEST_CASE("a session that cannot have a shell is not there", "[actors][session]") {
  session_node n;
  const auto made = n.create({"s"});
  const auto waiting = n.exec("true");
  n.shell().fail("no memory");
  n.sys.run();
  CHECK(made.reason().message == "no memory");
  CHECK(waiting.reason().message == "no memory");
  CHECK(n.create({"s"}).open());
  CHECK(n.place().shells.size() == 2);
}

TEST_CASE("a session is made, and deleted, when both its shell and the disk have said so",
          "[actors][session][gate]") {
  session_node n;
  n.sys.ask<caf::ok_atom>(n.box, find_atom::value, request_context{}).value();
  const auto refuse_later = [&] {
    n.store.hold_writes = true;
    n.store.held_error = error{errc::disk_full, "no room"};
  };
  const auto refuse_now = [&] {
    n.store.let_go();
    n.sys.run();
    n.store.held_error.reset();
  };
  refuse_later();
  const auto refused = n.create({"s"});
  SECTION("the disk refuses before the shell is there") {
    refuse_now();
    CHECK(refused.reason().code == errc::disk_full);
    CHECK(n.shell().over);
  }
  SECTION("the disk refuses after it") {
    n.ready();
    CHECK(refused.open());
    refuse_now();
    CHECK(refused.reason().code == errc::disk_full);
    CHECK(n.shell().over);
  }
  SECTION("the shell refuses, and what the disk says is too late") {
    n.shell().fail("no memory");
    n.sys.run();
    CHECK(refused.reason().message == "no memory");
    refuse_now();
  }
  CHECK(n.store.value("abc", "session/s/definition").empty());
  const auto made = n.create({"s"});
  n.ready(1);
  CHECK_NOTHROW(made.value());
  CHECK_FALSE(n.store.value("abc", "session/s/definition").empty());

  refuse_later();
  n.shell(1).hold_end = true;
  const auto kept = n.remove("s");
  refuse_now();
  CHECK(kept.reason().code == errc::disk_full);
  n.shell(1).finish({});
  n.sys.run();
  CHECK_NOTHROW(n.remove("s").value());
  CHECK(n.store.value("abc", "session/s/definition").empty());
}

TEST_CASE("commands of a session run one after the other, those of two side by side",
          "[actors][session]") {
  session_node n;
  const auto first = n.exec("one"), second = n.exec("two"),
             third = n.exec("three", "s", {}, "/tmp");
  const auto other = n.exec("else", "t");
  n.ready(0);
  n.ready(1);
  REQUIRE(n.shell().commands.size() == 1);
  CHECK(n.shell().commands[0].script == "one");
  CHECK(n.shell(1).commands.at(0).script == "else");
  n.start();
  CHECK_FALSE(first.open());
  CHECK(second.open());
  n.running().exit(0); // Its output goes on.
  n.sys.run();
  REQUIRE(n.shell().commands.size() == 2);
  n.start();
  n.finish(1 << 8);
  REQUIRE(n.shell().commands.size() == 3);
  CHECK(n.shell().commands[2].cwd == "/tmp");
  CHECK(other.open());
}

TEST_CASE("a session's time limit is for commands that bring none, and counts from their start",
          "[actors][session]") {
  session_node n;
  n.create({.id = "s", .command_timeout_ms = 1000});
  n.ready();
  n.exec("one", "s", 60'000);
  n.exec("two");
  n.start();
  n.sys.advance(10s);
  CHECK(n.running().signals.empty());
  n.finish(0);
  n.start();
  n.sys.advance(999ms);
  CHECK(n.running().signals.empty());
  n.sys.advance(1ms);
  CHECK(n.running().signals == std::vector{SIGTERM});
}

TEST_CASE("after a shell has ended the next command gets a fresh one, with defaults",
          "[actors][session]") {
  session_node n;
  n.create({"s", "/build", {{"A", "1"}}, 1000});
  n.ready();
  const auto leaving = n.exec("exit 3");
  const auto queued = n.exec("pwd");
  n.start();
  n.shell().finish({.status = 3 << 8}, true);
  n.running().complete_now();
  n.sys.run();
  CHECK(n.read(leaving.value()).value().ended->exit_code == 3);
  REQUIRE(n.place().shells.size() == 2);
  CHECK(n.shell(1).spec.cwd == "/workspace");
  CHECK_FALSE(has(n.shell(1).spec.env, "A=1"));
  n.ready(1);
  CHECK(n.shell(1).commands.at(0).script == "pwd");
  n.start(1);
  CHECK_FALSE(queued.open());
  n.sys.advance(5s);
  CHECK(n.running(1).signals.empty());
  // One that ends by itself between two commands, too.
  n.finish(0, 1);
  n.shell(1).finish({.status = SIGKILL}, true);
  n.sys.run();
  n.exec("again");
  CHECK(n.place().shells.size() == 3);
}

TEST_CASE("a command that its shell did not live to take is run by the next one, once",
          "[actors][session]") {
  session_node n;
  const auto first = n.exec("first");
  n.ready();
  const auto refuse = [&](std::size_t shell) {
    n.shell(shell).over = true;
    n.shell(shell).listener.on_ended({.status = 9});
    n.running(shell).fail(errc::sandbox_not_running, "the shell has ended");
    n.sys.run();
  };
  refuse(0);
  CHECK(first.open());
  REQUIRE(n.place().shells.size() == 2);
  n.ready(1);
  CHECK(n.shell(1).commands.at(0).script == "first");
  SECTION("it runs there") {
    n.start(1);
    CHECK_FALSE(first.open());
    n.finish(0, 1);
  }
  SECTION("or is refused") {
    refuse(1);
    CHECK(first.reason().code == errc::sandbox_not_running);
  }
}

TEST_CASE("deleting a session ends its shell and tells everybody why", "[actors][session]") {
  session_node n;
  const auto running = n.exec("sleep");
  const auto queued = n.exec("next");
  n.ready();
  n.start();
  const auto gone = n.remove("s");
  CHECK(gone.value() == caf::ok_atom::value);
  CHECK(n.shell().over);
  CHECK(queued.reason().code == errc::session_ended);
  CHECK(queued.reason().message == "Session 's' was deleted");
  CHECK(n.read(running.value()).reason().message == "Session 's' was deleted");
  CHECK(n.remove("s").reason().message == "Session 's' not found");
  n.exec("new");
  CHECK(n.place().shells.size() == 2);
}

TEST_CASE("sessions of a sandbox, and what waits for one, have ceilings", "[actors][session]") {
  session_node n;
  std::vector<pending<process_actor>> all;
  for (std::size_t i = 0; i < limits::waiting_per_session; ++i)
    all.push_back(n.exec("true"));
  CHECK(n.exec("more").reason().code == errc::limit_reached);
  for (std::size_t i = 1; i < limits::sessions_per_sandbox; ++i)
    n.create({"s" + std::to_string(i)});
  CHECK(n.create({"more"}).reason().code == errc::limit_reached);
  CHECK(n.exec("true", "more").reason().code == errc::limit_reached);
  CHECK(n.sys.ask<file_channel>(n.box, read_file_request{"/workspace/a", "more"}).reason().code ==
        errc::limit_reached);
  CHECK(n.remove("s1").value() == caf::ok_atom::value);
  CHECK(n.create({"more"}).open());
}

TEST_CASE("what waits for sessions has a ceiling in bytes", "[actors][session]") {
  session_node n;
  n.exec("first");
  const std::string line(limits::waiting_sandbox_bytes / 2, 'x');
  const auto held = n.exec(line);
  CHECK(held.open());
  CHECK(n.exec(line, "other").reason().code == errc::limit_reached);
  n.remove("s");
  CHECK(n.exec(line, "other").open());
}

TEST_CASE("a file operation makes the session that it names", "[actors][session]") {
  session_node n;
  n.sys.ask<file_channel>(n.box, read_file_request{"/workspace/a", "s"});
  CHECK(n.place().shells.empty()); // Its shell can wait.
  CHECK(n.create({"s"}).reason().code == errc::already_exists);
}

TEST_CASE("a session's command keeps its sandbox awake, an idle session does not",
          "[actors][session]") {
  session_node n;
  n.exec("sleep");
  n.ready();
  n.start();
  for (int i = 0; i < 60; ++i)
    n.sys.advance(30s);
  CHECK(n.place().destroys == 0);
  n.finish(0);
  for (int i = 0; i < 60; ++i)
    n.sys.advance(30s);
  CHECK(n.place().destroys == 1);
  // The next run begins without it.
  n.exec("new");
  CHECK(n.place().shells.size() == 1);
}

TEST_CASE("sessions end with their sandbox", "[actors][session]") {
  session_node n;
  const auto running = n.exec("sleep");
  const auto queued = n.exec("next");
  n.ready();
  n.start();
  const auto gone = n.sys.ask<caf::ok_atom>(n.box, delete_atom::value, request_context{});
  n.shell().finish({.status = 0, .lost = true});
  n.sys.run();
  CHECK(gone.value() == caf::ok_atom::value);
  CHECK(n.read(running.value()).reason().code == errc::sandbox_not_running);
  CHECK(queued.reason().code == errc::sandbox_not_running);
}

TEST_CASE("a terminal does not wait for its session's command", "[actors][session]") {
  session_node n;
  n.create({"s", "/build"});
  n.ready();
  n.exec("sleep");
  n.start();
  n.shell().surroundings = {"/elsewhere", {}};
  open_terminal_request wanted;
  wanted.session = "s";
  n.sys.get().spawn([box = n.box, wanted](caf::event_based_actor* self) {
    self->request(box, caf::infinite, wanted)
      .then([](const terminal_actor&, std::uint64_t, std::uint64_t) {});
  });
  n.sys.run();
  CHECK(n.process().spec.cwd == "/build");
  n.process().start();
  n.sys.run();
}

TEST_CASE("a session says where its shell is when that is free, else how it was made",
          "[actors][session]") {
  test_system sys;
  actors::session_options options;
  const auto place = std::make_shared<fake_sandbox>();
  options.place = place;
  options.first.cwd = "/build";
  const auto session = actors::spawn_session(sys.get(), std::move(options));
  const auto look = [&] {
    return sys.ask<runtime::shell_surroundings>(session, look_around_atom::value);
  };
  CHECK(look().value().cwd == "/build");
  sys.ask<caf::ok_atom>(session, open_atom::value);
  CHECK(look().value().cwd == "/build");
  place->shells.at(0)->ready();
  sys.run();
  place->shells[0]->surroundings = {"/tmp", {"A=1"}};
  CHECK(look().value().cwd == "/tmp");
  CHECK(look().value().env == std::vector<std::string>{"A=1"});
  // Whoever comes while it is being looked hears the same.
  place->shells[0]->looks_wait = true;
  const auto first = look(), second = look();
  CHECK((first.open() && second.open()));
  REQUIRE(place->shells[0]->looks.size() == 1);
  place->shells[0]->looks[0](runtime::shell_surroundings{"/late", {}});
  sys.run();
  CHECK(first.value().cwd == "/late");
  CHECK(second.value().cwd == "/late");
  CHECK(sys.ask<caf::ok_atom>(session, end_session{{errc::session_ended, "over"}}).value() ==
        caf::ok_atom::value);
}

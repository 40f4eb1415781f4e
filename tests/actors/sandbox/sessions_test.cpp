// Sessions and terminals, as parts.
#include "tests/actors/sandbox/fake_core.hpp"

#include <csignal>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

struct shells_core : fake_core {
  terminal_room room{*this};
  actors::inside_sandbox::sessions shells{*this, [this](const std::string& id) { room.end(id); }};
  actors::inside_sandbox::terminals screens{*this, shells, room};

  shells_core() {
    have({&shells, &room, &screens});
    be_running();
  }
  owed<caf::ok_atom> create(const create_session_request& wanted) {
    owed<caf::ok_atom> told;
    shells.create(wanted, told);
    return told;
  }
  using opened = owed<terminal_actor, std::uint64_t, std::uint64_t>;
  opened open(std::string session, std::string defined = {}) {
    open_terminal_request wanted;
    wanted.session = std::move(session);
    wanted.defined = std::move(defined);
    opened told;
    screens.open(wanted, told);
    run();
    return told;
  }
};

} // namespace

TEST_CASE("a session is made when its shell is up and its definition durable", "[parts]") {
  shells_core core;
  core.cluster.hold = true;
  const auto told = core.create({"one", "/x", {{"A", "1"}}, 500});
  REQUIRE(core.fake_core::sessions.size() == 1);
  CHECK(core.fake_core::sessions[0]->options.first.cwd == "/x");
  core.fake_core::sessions[0]->opening.back().deliver(caf::ok_atom::value);
  CHECK(told.open());
  core.cluster.let_go();
  told.got();
  CHECK(core.create({"one"}).code() == errc::already_exists);
}

TEST_CASE("a session whose shell does not start is not there", "[parts]") {
  shells_core core;
  const auto told = core.create({"one"});
  core.fake_core::sessions[0]->opening.back().fail({errc::launch_failed, "no"});
  CHECK(told.code() == errc::launch_failed);
  CHECK(core.fake_core::sessions[0]->killed);
  CHECK_FALSE(core.shells.has("one"));
  CHECK(core.cluster.kept.count("session/one/definition") == 0);
}

TEST_CASE("a session that is asked for again by its key is the same", "[parts]") {
  shells_core core;
  create_session_request wanted{"one"};
  wanted.idempotency = {"k", "d"};
  const auto first = core.create(wanted), second = core.create(wanted);
  CHECK(core.fake_core::sessions.size() == 1);
  for (const auto& each : core.fake_core::sessions[0]->opening)
    each.deliver(caf::ok_atom::value);
  first.got();
  second.got();
  wanted.idempotency.digest = "other";
  CHECK(core.create(wanted).code() == errc::idempotency_conflict);
}

TEST_CASE("a session comes back as it was made after its sandbox was stopped", "[parts]") {
  shells_core core;
  core.create({"one", "/x", {{"A", "1"}}, 500});
  core.stops();
  CHECK(core.fake_core::sessions[0]->ended->code == errc::sandbox_not_running);
  CHECK(core.status().sessions == 0);
  core.be_running();
  REQUIRE(core.shells.find("one"));
  const auto& options = core.fake_core::sessions[1]->options;
  CHECK(options.first.cwd == "/x");
  CHECK(options.command_timeout_ms == 500);
  CHECK(std::count(options.first.env.begin(), options.first.env.end(), "A=1") == 1);
}

TEST_CASE("an image without bash has no sessions, and a sandbox only so many", "[parts]") {
  shells_core core;
  for (std::size_t i = 0; i < limits::sessions_per_sandbox; ++i)
    CHECK(core.shells.find(std::to_string(i)));
  CHECK(core.shells.find("more").reason().code == errc::limit_reached);
  shells_core small;
  small.have_image({{"host", true}, {}, "/bin/sh"});
  CHECK(small.shells.find("one").reason().code == errc::launch_failed);
}

TEST_CASE("a command of a session uses the sandbox until it is over", "[parts]") {
  shells_core core;
  exec_request wanted;
  wanted.command_line = "true";
  wanted.session = "one";
  owed<process_actor> told;
  bool over = false;
  core.shells.run({wanted, nullptr, [&] { over = true; }}, told);
  told.got();
  auto command = core.fake_core::sessions[0]->commands[0].process;
  CHECK(core.in_use());
  command->on_over();
  CHECK(over);
  core.fake_core::sessions[0]->commands.clear();
  command.reset();
  core.run();
  CHECK_FALSE(core.in_use());
  wanted.session = "none";
  wanted.only_if_session = true;
  owed<process_actor> refused;
  core.shells.run({wanted, nullptr}, refused);
  CHECK(refused.code() == errc::not_found);
}

TEST_CASE("a session that is deleted takes its terminal with it", "[parts]") {
  shells_core core;
  core.open("one").got();
  owed<caf::ok_atom> gone, none;
  core.shells.remove({"one"}, gone);
  gone.got();
  CHECK(core.fake_core::terminals[0]->ended);
  CHECK(core.fake_core::sessions[0]->ended->code == errc::session_ended);
  core.fake_core::sessions[0]->on_gone(*core.fake_core::sessions[0]);
  core.ends();
  CHECK_FALSE(core.fake_core::sessions[0]->killed); // It has ended.
  core.shells.remove({"one"}, none);
  CHECK(none.code() == errc::not_found);
}

TEST_CASE("a session's terminal begins where the session is, and is joined by the next client",
          "[parts]") {
  shells_core core;
  core.open("one").got();
  core.open("one").got();
  REQUIRE(core.fake_core::terminals.size() == 1);
  CHECK(core.fake_core::terminals[0]->options.spec.cwd == "/there");
  CHECK(core.fake_core::terminals[0]->joins == 2);
  CHECK(core.status().terminals == 1);
  core.fake_core::terminals[0]->options.on_over();
  core.run();
  CHECK(core.status().terminals == 0);
}

TEST_CASE("a terminal with a client keeps the sandbox in use, and wakes it", "[parts]") {
  shells_core core;
  core.open("one").got();
  const auto& terminal = *core.fake_core::terminals[0];
  terminal.options.on_use(true);
  core.run();
  CHECK(core.in_use());
  CHECK(core.thaws == 1);
  terminal.options.on_use(false);
  core.run();
  CHECK_FALSE(core.in_use());
}

TEST_CASE("the terminal that was left longest ago gives way if its shell is quiet", "[parts]") {
  shells_core core;
  for (std::size_t i = 0; i < limits::terminals_per_sandbox; ++i) {
    core.open("s" + std::to_string(i % 2), "");
    owed<caf::ok_atom> defined;
    core.screens.define({"t" + std::to_string(i)}, defined);
    if (core.room.count() < limits::terminals_per_sandbox)
      core.open({}, "t" + std::to_string(i));
  }
  REQUIRE(core.room.count() == limits::terminals_per_sandbox);
  for (std::size_t i = 0; i < core.fake_core::terminals.size(); ++i)
    core.fake_core::terminals[i]->number = static_cast<std::int32_t>(i + 1);
  CHECK(core.open("new").code() == errc::limit_reached); // None is quiet.
  core.place->quiet = {3, 2};
  const auto waits = core.open("new");
  CHECK(waits.open());
  CHECK(core.fake_core::terminals[1]->ended);
  CHECK_FALSE(core.fake_core::terminals[2]->ended);
  core.fake_core::terminals[1]->options.on_over();
  core.run();
  waits.got();
}

TEST_CASE("a defined terminal is known for as long as it is defined", "[parts]") {
  shells_core core;
  owed<caf::ok_atom> made, gone, again;
  owed<terminal_status> idle, running;
  core.screens.define({"t", "top", "$HOME"}, made);
  made.got();
  core.screens.find({"t"}, idle);
  CHECK(idle.got().known);
  CHECK_FALSE(idle.got().running);
  core.open({}, "t").got();
  const auto& terminal = *core.fake_core::terminals[0];
  CHECK(terminal.options.spec.argv == std::vector<std::string>{"/bin/bash", "-c", "top"});
  CHECK(terminal.options.spec.cwd == "/home/sandbox");
  core.screens.find({"t"}, running);
  CHECK(running.got().end_offset == 9);
  core.screens.forget({"t"}, gone);
  gone.got();
  CHECK(terminal.signals == std::vector<int>{SIGKILL});
  core.screens.forget({"t"}, again);
  CHECK(again.code() == errc::not_found);
  CHECK(core.open({}, "t").code() == errc::not_found);
}

TEST_CASE("a terminal is defined in a sandbox that there is, and kept if its record is",
          "[parts]") {
  fake_core core;
  terminal_room room{core};
  actors::inside_sandbox::sessions shells{core, nullptr};
  actors::inside_sandbox::terminals screens{core, shells, room};
  owed<caf::ok_atom> nowhere, lost;
  screens.define({"t"}, nowhere);
  CHECK(nowhere.code() == errc::not_found);
  core.be_running();
  core.cluster.write_error = error{errc::store_failed, "no"};
  screens.define({"t"}, lost);
  CHECK(lost.code() == errc::store_failed);
}

TEST_CASE("definitions of an earlier version are read", "[parts]") {
  using namespace std::string_literals;
  shells_core core;
  core.cluster.kept["session/one/definition"] = "/x\000500\0A=1\0B=2=3\0"s;
  core.cluster.kept["session/one/maker"] = "d\n" + std::to_string(core.time.unix_ms()) + "\nk";
  core.cluster.kept["terminal/t"] = "5\0$HOME/y\0top -d 1"s;
  REQUIRE(core.shells.find("one"));
  const auto& options = core.fake_core::sessions[0]->options;
  CHECK(options.first.cwd == "/x");
  CHECK(options.command_timeout_ms == 500);
  CHECK(std::count(options.first.env.begin(), options.first.env.end(), "B=2=3") == 1);
  create_session_request again{"two"};
  again.idempotency = {"k", "d"};
  core.create(again);
  CHECK(core.fake_core::sessions.size() == 1);
  core.open({}, "t").got();
  const auto& spec = core.fake_core::terminals[0]->options.spec;
  CHECK(spec.argv.back() == "top -d 1");
  CHECK(spec.cwd == "/home/sandbox/y");
}

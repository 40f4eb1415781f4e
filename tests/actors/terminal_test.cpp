#include "base/limits.hpp"
#include "tests/actors/fixture.hpp"

#include <csignal>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// Somebody at a terminal, until it is told to leave.
struct visitor {
  std::optional<error> refused;
  terminal_actor terminal;
  std::uint64_t begin = 0, end = 0;
  bool taken_over = false;
  caf::actor self;
};

std::shared_ptr<visitor> visit(small_node& node, const sandbox_actor& box,
                               open_terminal_request wanted = {}) {
  auto one = std::make_shared<visitor>();
  one->self = node.sys.get().spawn([box, wanted, one](caf::event_based_actor* self) {
    self->request(box, caf::infinite, wanted)
      .then(
        [one](const terminal_actor& terminal, std::uint64_t begin, std::uint64_t end) {
          one->terminal = terminal;
          one->begin = begin;
          one->end = end;
        },
        [one](const caf::error& why) { one->refused = from_caf(why); });
    self->become([](delete_atom) {}, // It stays, as long as somebody has it.
                 [weak = std::weak_ptr{one}](taken_over_atom) {
                   if (const auto who = weak.lock())
                     who->taken_over = true;
                 });
  });
  node.sys.run();
  return one;
}

void leave(small_node& node, const std::shared_ptr<visitor>& who) {
  who->terminal = nullptr;
  caf::anon_send_exit(who->self, caf::exit_reason::user_shutdown);
  node.sys.run();
}

std::shared_ptr<visitor> visit_started(small_node& node, const sandbox_actor& box,
                                       open_terminal_request wanted = {}) {
  auto one = visit(node, box, std::move(wanted));
  node.process().start();
  node.sys.run();
  return one;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

} // namespace

TEST_CASE("the first client makes a session's terminal, and the next ones join it",
          "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  open_terminal_request wanted;
  wanted.columns = 132;
  wanted.rows = 50;
  const auto first = visit(node, box, wanted);
  REQUIRE(node.place().processes.size() == 1);
  CHECK_FALSE(first->terminal); // It does not run yet.
  const auto early = visit(node, box);
  node.process().start();
  node.sys.run();
  REQUIRE(first->terminal);
  CHECK(early->terminal == first->terminal);
  CHECK(first->end == 0);
  const auto& spec = node.process().spec;
  CHECK(spec.argv == std::vector<std::string>{"/bin/bash"});
  CHECK(spec.cwd == "/workspace");
  CHECK(has(spec.env, "TERM=xterm-256color"));
  CHECK(has(spec.env, "PROMPT_COMMAND=clear; unset PROMPT_COMMAND"));
  CHECK(has(spec.env, "HOME=/home/sandbox"));
  CHECK(node.process().size->columns == 132);
  CHECK(node.process().size->rows == 50);
  node.process().print(output_stream::out, "hello");
  const auto later = visit(node, box);
  CHECK(later->terminal == first->terminal);
  CHECK(later->begin == 0);
  CHECK(later->end == 1);
  CHECK(node.place().processes.size() == 1);
  wanted.session = "dev";
  const auto other = visit_started(node, box, wanted);
  CHECK(other->terminal != first->terminal);
  CHECK(node.place().processes.size() == 2);
  for (const auto& each : {first, early, later, other})
    leave(node, each);
}

TEST_CASE("a shell is a path, or a name that the image's shell finds", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  open_terminal_request wanted;
  wanted.shell = "/bin/zsh";
  leave(node, visit_started(node, box, wanted));
  CHECK(node.process().spec.argv == std::vector<std::string>{"/bin/zsh"});
  wanted.session = "b";
  wanted.shell = "fish";
  leave(node, visit_started(node, box, wanted));
  CHECK(node.process().spec.argv ==
        std::vector<std::string>{"/bin/bash", "-c", "exec \"$0\"", "fish"});
}

TEST_CASE("what is typed is answered when it has been taken, and sizes arrive",
          "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto one = visit_started(node, box);
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(one->terminal, write_input{"ls\n"}).value());
  CHECK(node.process().typed == "ls\n");
  caf::anon_send(one->terminal, resize_terminal{10, 20});
  node.sys.run();
  CHECK(node.process().size->columns == 10);
  const auto too_much = node.sys.ask<caf::ok_atom>(
    one->terminal, write_input{std::string(limits::waiting_input_bytes + 1, 'x')});
  CHECK(too_much.reason().code == errc::limit_reached);
  leave(node, one);
}

TEST_CASE("a terminal's end is told with its signal, and the next client gets a new one",
          "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto one = visit_started(node, box);
  const auto asked = node.sys.ask<output_chunk>(one->terminal, read_output{0});
  CHECK(asked.open());
  node.process().exit(SIGTERM);
  node.process().complete_now();
  node.sys.run();
  REQUIRE(asked.value().ended);
  CHECK(asked.value().ended->exit_code == 128 + SIGTERM);
  CHECK(asked.value().ended->signal == SIGTERM);
  CHECK(node.sys.ask<caf::ok_atom>(one->terminal, write_input{"x"}).reason().code ==
        errc::sandbox_not_running);
  const auto next = visit_started(node, box);
  CHECK(next->terminal != one->terminal);
  CHECK(node.place().processes.size() == 2);
  leave(node, one);
  leave(node, next);
}

TEST_CASE("what a client has waited for is forgotten when it goes", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto stays = visit_started(node, box);
  for (std::size_t i = 0; i < 5 * limits::clients_per_terminal; ++i) {
    const auto one = visit(node, box);
    REQUIRE(one->terminal);
    caf::send_as(one->self, one->terminal, read_output{one->end, 1024, false});
    node.sys.run();
    leave(node, one);
  }
  auto& command = node.process();
  CHECK(command.readers.size() == 5 * limits::clients_per_terminal);
  CHECK(command.forgotten == command.readers);
  leave(node, stays);
}

TEST_CASE("a deleted session's terminal is hung up, and ended if that is not enough",
          "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  open_terminal_request wanted;
  wanted.session = "s";
  const auto one = visit_started(node, box, wanted);
  auto& command = node.process();
  leave(node, one); // With nobody there it has its time as well.
  node.sys.ask<caf::ok_atom>(box, delete_session_request{"s"});
  CHECK(command.signals == std::vector<int>{SIGHUP});
  node.sys.advance(limits::kill_grace);
  CHECK(command.signals == std::vector<int>{SIGHUP, SIGKILL});
}

TEST_CASE("a terminal that cannot start refuses those who wait, and is forgotten",
          "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto one = visit(node, box);
  const auto two = visit(node, box);
  node.process().fail(errc::launch_failed, "no such shell");
  node.sys.run();
  REQUIRE(one->refused);
  CHECK(one->refused->message == "no such shell");
  CHECK(two->refused);
  const auto again = visit_started(node, box);
  CHECK(again->terminal);
  const auto slow = visit(node, box, {"slow"});
  node.sys.advance(limits::start_patience);
  REQUIRE(slow->refused);
  CHECK(slow->refused->code == errc::launch_failed);
  CHECK(node.process().signals == std::vector<int>{SIGKILL});
  for (const auto& each : {one, two, again, slow})
    leave(node, each);
}

TEST_CASE("clients and terminals have a ceiling", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  std::vector<std::shared_ptr<visitor>> all{visit_started(node, box)};
  while (all.size() < limits::clients_per_terminal)
    all.push_back(visit(node, box));
  auto refused = visit(node, box);
  REQUIRE(refused->refused);
  CHECK(refused->refused->code == errc::limit_reached);
  leave(node, all.back());
  CHECK(visit(node, box)->terminal);
  for (std::size_t i = 1; i < limits::terminals_per_sandbox; ++i)
    all.push_back(visit_started(node, box, {"s" + std::to_string(i)}));
  refused = visit(node, box, {"more"});
  REQUIRE(refused->refused);
  CHECK(refused->refused->code == errc::limit_reached);
  CHECK(refused->refused->message ==
        "the sandbox has 48 terminals, which is as many as it may, and each has a client or runs "
        "something; end one of them");
}

namespace {

/// As many terminals as a sandbox may have, of sessions s0, s1, …, which were left in that order.
void fill(small_node& node, const sandbox_actor& box) {
  for (std::size_t i = 0; i < limits::terminals_per_sandbox; ++i)
    leave(node, visit_started(node, box, {"s" + std::to_string(i)}));
}

fake_process& terminal_of(small_node& node, std::size_t session) {
  return *node.place().processes.at(session);
}

void end(small_node& node, fake_process& which) {
  which.exit(SIGHUP);
  which.complete_now();
  node.sys.run();
}

void all_are_quiet(small_node& node) {
  for (const auto& each : node.place().processes)
    node.place().quiet.push_back(each->number);
}

const auto most = limits::terminals_per_sandbox;

} // namespace

TEST_CASE("one terminal more: the shell that was left longest ago gives way",
          "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  fill(node, box);
  leave(node, visit(node, box, {"s0"})); // Left again, so that s1 is the first.
  all_are_quiet(node);
  const auto one = visit(node, box, {"more"});
  CHECK(node.place().processes.size() == most); // Not before the other has ended.
  CHECK(terminal_of(node, 1).signals == std::vector<int>{SIGHUP});
  CHECK_FALSE(one->refused);
  end(node, terminal_of(node, 1));
  REQUIRE(node.place().processes.size() == most + 1);
  node.process().start();
  node.sys.run();
  CHECK(one->terminal);
  for (std::size_t i = 0; i < most; ++i)
    CHECK(terminal_of(node, i).signals.empty() == (i != 1));
  SECTION("its session has a new one when somebody comes, and the next gives way") {
    const auto back = visit(node, box, {"s1"});
    end(node, terminal_of(node, 2));
    node.process().start();
    node.sys.run();
    CHECK(back->terminal);
    leave(node, back);
  }
  SECTION("a shell that does not hang up is killed") {
    const auto next = visit(node, box, {"next"});
    CHECK(terminal_of(node, 2).signals == std::vector<int>{SIGHUP});
    node.sys.advance(limits::kill_grace);
    CHECK(terminal_of(node, 2).signals == std::vector<int>{SIGHUP, SIGKILL});
    leave(node, next);
  }
  leave(node, one);
}

TEST_CASE("a terminal that runs something, or has a client, does not give way",
          "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  fill(node, box);
  const auto there = visit(node, box, {"s3"});
  REQUIRE(there->terminal);
  SECTION("nobody waits in vain") {
    node.place().quiet = {terminal_of(node, 3).number, 7, 0};
    const auto refused = visit(node, box, {"more"});
    REQUIRE(refused->refused);
    CHECK(refused->refused->code == errc::limit_reached);
    leave(node, refused);
  }
  SECTION("whichever is left of them does") {
    node.place().quiet = {terminal_of(node, 3).number, terminal_of(node, 9).number};
    const auto one = visit(node, box, {"more"});
    CHECK(terminal_of(node, 9).signals == std::vector<int>{SIGHUP});
    end(node, terminal_of(node, 9));
    CHECK(node.place().processes.size() == most + 1);
    const auto two = visit(node, box, {"more than that"});
    CHECK(two->refused);
    for (const auto& each : {one, two})
      leave(node, each);
  }
  CHECK(terminal_of(node, 3).signals.empty());
  leave(node, there);
}

TEST_CASE("a client that comes while its terminal is about to give way keeps it",
          "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  fill(node, box);
  node.place().hold_quiet = true;
  const auto more = visit(node, box, {"more"});
  REQUIRE(node.place().quiet_asked.size() == 1);
  const auto back = visit(node, box, {"s0"});
  REQUIRE(back->terminal);
  SECTION("and stays") {}
  SECTION("and goes again") {
    leave(node, back);
  }
  node.place().quiet_asked.front()({terminal_of(node, 0).number});
  node.sys.run();
  CHECK(terminal_of(node, 0).signals.empty());
  REQUIRE(more->refused);
  CHECK(more->refused->code == errc::limit_reached);
  for (const auto& each : {more, back})
    leave(node, each);
}

TEST_CASE("several who want a terminal get one each, and ask once", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  fill(node, box);
  node.place().hold_quiet = true;
  std::vector<std::shared_ptr<visitor>> all;
  for (int i = 0; i < 5; ++i)
    all.push_back(visit(node, box, {"more" + std::to_string(i)}));
  CHECK(node.place().looks_for_quiet == 1);
  std::vector<std::int32_t> quiet;
  for (const std::size_t i : {0u, 2u, 4u})
    quiet.push_back(terminal_of(node, i).number);
  node.place().quiet_asked.front()(quiet);
  node.sys.run();
  // Who came first is served.
  for (int i = 0; i < 5; ++i)
    CHECK(all[static_cast<std::size_t>(i)]->refused.has_value() == (i >= 3));
  for (const std::size_t i : {4u, 0u, 2u})
    end(node, terminal_of(node, i));
  CHECK(node.place().processes.size() == most + 3);
  for (std::size_t i = most; i < most + 3; ++i)
    node.place().processes[i]->start();
  node.sys.run();
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(all[i]->terminal);
  for (const auto& each : all)
    leave(node, each);
}

TEST_CASE("who waits for a terminal is told when its sandbox ends", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  fill(node, box);
  node.place().hold_quiet = true;
  const auto one = visit(node, box, {"more"});
  const auto gone = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  CHECK_NOTHROW(gone.value());
  REQUIRE(one->refused);
  CHECK(one->refused->code == errc::sandbox_not_running);
  leave(node, one);
}

TEST_CASE("a terminal keeps its sandbox awake while somebody is there", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto one = visit_started(node, box);
  const auto two = visit(node, box);
  leave(node, one);
  for (int i = 0; i < 4; ++i)
    node.sys.advance(5min);
  CHECK(node.place().destroys == 0);
  leave(node, two);
  for (int i = 0; i < 3; ++i)
    node.sys.advance(5min);
  CHECK(node.place().destroys == 1);
}

TEST_CASE("whoever is at a terminal is told that its sandbox has ended", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto one = visit_started(node, box);
  const auto asked = node.sys.ask<output_chunk>(one->terminal, read_output{0});
  const auto gone = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  CHECK_NOTHROW(gone.value());
  CHECK(asked.reason().code == errc::sandbox_not_running);
  CHECK(asked.reason().message == "the sandbox has ended");
  leave(node, one);
}

namespace {

/// One that runs, with a terminal that is defined.
sandbox_object_actor sandbox_with(small_node& node, const define_terminal& what) {
  auto box = node.make_sandbox();
  CHECK_NOTHROW(
    node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value()); // It runs.
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, what).value());
  return box;
}

open_terminal_request defined(bool takes_over = false) {
  open_terminal_request wanted;
  wanted.defined = "t1";
  wanted.takes_over = takes_over;
  return wanted;
}

terminal_status look(small_node& node, const sandbox_actor& box) {
  return node.sys.ask<terminal_status>(box, find_terminal{"t1", {}}).value();
}

} // namespace

TEST_CASE("a defined terminal is durable, and its program starts when it is opened",
          "[actors][terminal]") {
  small_node node;
  const auto box = sandbox_with(node, {"t1", "top -b", "~/work", {}});
  const auto before = node.place().processes.size();
  CHECK(node.store.value("abc", "terminal/t1").ends_with(std::string{"\0~/work\0top -b", 14}));
  CHECK(look(node, box).known);
  CHECK_FALSE(look(node, box).running);
  const auto one = visit_started(node, box, defined());
  REQUIRE(one->terminal);
  CHECK(node.place().processes.size() == before + 1);
  const auto& spec = node.process().spec;
  CHECK(spec.argv == std::vector<std::string>{"/bin/bash", "-c", "top -b"});
  CHECK(spec.cwd == "/home/sandbox/work");
  CHECK_FALSE(has(spec.env, "PROMPT_COMMAND=clear; unset PROMPT_COMMAND"));
  CHECK(node.place().shells.empty()); // It has no session.
  node.process().print(output_stream::out, "hello");
  CHECK(look(node, box).running);
  CHECK(look(node, box).end_offset == 1);
  // A later server finds it by its name.
  CHECK(spec.label.find("terminal/t1") != std::string::npos);
  caf::anon_send(one->terminal, signal_terminal{SIGINT});
  node.sys.run();
  CHECK(node.process().signals == std::vector<int>{SIGINT});
  node.process().exit(0);
  node.process().complete_now();
  node.sys.run();
  CHECK(look(node, box).known);
  CHECK_FALSE(look(node, box).running);
  leave(node, one);
  const auto again = visit_started(node, box, defined());
  CHECK(again->terminal);
  leave(node, again);
}

TEST_CASE("a defined terminal has one client, until another takes over", "[actors][terminal]") {
  small_node node;
  const auto box = sandbox_with(node, {"t1", {}, {}, {}});
  const auto one = visit_started(node, box, defined());
  CHECK(node.process().spec.argv == std::vector<std::string>{"/bin/bash"});
  CHECK(node.process().spec.cwd == "/workspace");
  const auto second = visit(node, box, defined());
  REQUIRE(second->refused);
  CHECK(second->refused->code == errc::already_exists);
  CHECK_FALSE(one->taken_over);
  const auto third = visit(node, box, defined(true));
  CHECK(third->terminal == one->terminal);
  CHECK(one->taken_over);
  leave(node, third);
  const auto last = visit(node, box, defined());
  CHECK(last->terminal == one->terminal);
  for (const auto& each : {one, second, last})
    leave(node, each);
}

TEST_CASE("a defined terminal that is forgotten is killed", "[actors][terminal]") {
  small_node node;
  const auto box = sandbox_with(node, {"t1", {}, {}, {}});
  const auto one = visit_started(node, box, defined());
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, forget_terminal{"t1", {}}).value());
  CHECK(node.process().signals.front() == SIGKILL);
  CHECK(node.store.value("abc", "terminal/t1").empty());
  CHECK_FALSE(look(node, box).known);
  CHECK(node.sys.ask<caf::ok_atom>(box, forget_terminal{"t1", {}}).reason().code ==
        errc::not_found);
  const auto none = visit(node, box, defined());
  REQUIRE(none->refused);
  CHECK(none->refused->code == errc::not_found);
  node.process().exit(SIGKILL);
  node.process().complete_now();
  node.sys.run();
  leave(node, one);
  leave(node, none);
}

TEST_CASE("what is asked of defined terminals makes no sandbox", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  CHECK(node.sys.ask<caf::ok_atom>(box, define_terminal{"t1", {}, {}, {}}).reason().code ==
        errc::not_found);
  CHECK_FALSE(look(node, box).known);
  const auto none = visit(node, box, defined());
  REQUIRE(none->refused);
  CHECK(none->refused->code == errc::not_found);
  CHECK(node.engine.creations.empty());
  leave(node, none);
}

TEST_CASE("of too many defined terminals the oldest that does not run is forgotten",
          "[actors][terminal]") {
  small_node node;
  const auto box = sandbox_with(node, {"t1", {}, {}, {}});
  const auto one = visit_started(node, box, defined());
  for (int i = 0; i < 2 * static_cast<int>(limits::terminals_per_sandbox); ++i) {
    node.sys.time.advance(1s);
    CHECK_NOTHROW(
      node.sys.ask<caf::ok_atom>(box, define_terminal{"n" + std::to_string(i), {}, {}, {}})
        .value());
  }
  CHECK(look(node, box).known);
  const auto known = [&](const std::string& id) {
    return node.sys.ask<terminal_status>(box, find_terminal{id, {}}).value().known;
  };
  CHECK_FALSE(known("n0"));
  CHECK(known("n1"));
  leave(node, one);
}

TEST_CASE("a defined terminal gives way like any other, and starts again when it is opened",
          "[actors][terminal]") {
  small_node node;
  const auto box = sandbox_with(node, {"t1", {}, {}, {}});
  leave(node, visit_started(node, box, defined()));
  for (std::size_t i = 1; i < most; ++i)
    leave(node, visit_started(node, box, {"s" + std::to_string(i)}));
  all_are_quiet(node);
  const auto one = visit(node, box, {"more"});
  CHECK(terminal_of(node, 0).signals == std::vector<int>{SIGHUP});
  end(node, terminal_of(node, 0));
  CHECK(look(node, box).known);
  CHECK_FALSE(look(node, box).running);
  const auto again = visit(node, box, defined());
  CHECK(terminal_of(node, 1).signals == std::vector<int>{SIGHUP});
  SECTION("it is there") {
    end(node, terminal_of(node, 1));
    node.process().start();
    node.sys.run();
    CHECK(again->terminal);
  }
  SECTION("it has been forgotten meanwhile") {
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, forget_terminal{"t1", {}}).value());
    end(node, terminal_of(node, 1));
    REQUIRE(again->refused);
    CHECK(again->refused->code == errc::not_found);
  }
  for (const auto& each : {one, again})
    leave(node, each);
}

namespace {

open_terminal_request program(std::vector<std::string> argv = {"top"}) {
  open_terminal_request wanted;
  wanted.program.emplace();
  wanted.program->argv = std::move(argv);
  return wanted;
}

} // namespace

TEST_CASE("a program's terminal is its client's alone", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  auto wanted = program({"sh", "-c", "exit 3"});
  wanted.program->cwd = "/there";
  wanted.program->env = {{"A", "1"}, {"TERM", "dumb"}, {"HOME", "/there"}};
  wanted.columns = 132;
  const auto one = visit_started(node, box, wanted);
  REQUIRE(one->terminal);
  CHECK(one->end == 0);
  const auto& spec = node.process().spec;
  CHECK(spec.argv == wanted.program->argv);
  CHECK(spec.cwd == "/there");
  CHECK(spec.needs_cwd);
  CHECK(spec.waits_for_reader);
  for (const auto* word : {"A=1", "TERM=dumb", "HOME=/there"})
    CHECK(has(spec.env, word));
  CHECK_FALSE(has(spec.env, "PROMPT_COMMAND=clear; unset PROMPT_COMMAND"));
  CHECK_FALSE(has(spec.env, "HOME=/home/sandbox"));
  CHECK(node.process().size->columns == 132);
  const auto other = visit_started(node, box, program());
  CHECK(other->terminal != one->terminal);
  CHECK(node.process().spec.cwd == "/workspace");
  CHECK(has(node.process().spec.env, "TERM=xterm-256color"));
  const auto shell = visit_started(node, box);
  CHECK_FALSE(node.process().spec.needs_cwd);
  CHECK_FALSE(node.process().spec.waits_for_reader);
  for (const auto& each : {one, other, shell})
    leave(node, each);
}

TEST_CASE("a program's terminal is hung up when its client has gone", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  SECTION("and ended if that is not enough") {
    const auto one = visit_started(node, box, program());
    auto& command = node.process();
    CHECK(command.signals.empty());
    leave(node, one);
    CHECK(command.signals == std::vector<int>{SIGHUP});
    node.sys.advance(limits::kill_grace);
    CHECK(command.signals == std::vector<int>{SIGHUP, SIGKILL});
  }
  SECTION("also before it runs") {
    const auto one = visit(node, box, program());
    auto& command = node.process();
    caf::anon_send_exit(one->self, caf::exit_reason::user_shutdown);
    node.sys.run();
    command.start();
    node.sys.run();
    CHECK(command.signals == std::vector<int>{SIGHUP, SIGHUP});
    node.sys.advance(limits::kill_grace);
    CHECK(command.signals.back() == SIGKILL);
  }
  SECTION("which makes room for the next") {
    std::vector<std::shared_ptr<visitor>> all;
    while (all.size() < most)
      all.push_back(visit_started(node, box, program()));
    const auto refused = visit(node, box, program());
    REQUIRE(refused->refused);
    CHECK(refused->refused->code == errc::limit_reached);
    leave(node, all.front());
    const auto waits = visit(node, box, program());
    CHECK_FALSE(waits->refused); // One is ending.
    end(node, terminal_of(node, 0));
    node.process().start();
    node.sys.run();
    CHECK(waits->terminal);
    for (const auto& each : all)
      leave(node, each);
    leave(node, waits);
  }
}

TEST_CASE("a program that is over keeps its place until its client is gone", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  std::vector<std::shared_ptr<visitor>> all;
  while (all.size() < most)
    all.push_back(visit_started(node, box, program()));
  end(node, terminal_of(node, 0));
  end(node, terminal_of(node, 1));
  CHECK(node.sys.ask<sandbox_status>(box, status_atom::value).value().terminals == most - 2);
  const auto refused = visit(node, box, program());
  REQUIRE(refused->refused);
  CHECK(refused->refused->code == errc::limit_reached);
  leave(node, all[0]);
  leave(node, all[1]);
  for (int i = 0; i < 2; ++i) {
    all.push_back(visit_started(node, box, program()));
    CHECK(all.back()->terminal);
  }
  REQUIRE(visit(node, box, program())->refused);
  for (std::size_t i = 2; i < all.size(); ++i)
    leave(node, all[i]);
}

TEST_CASE("a program and a file are no reason to make a sandbox again that has gone",
          "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  auto wanted = program();
  wanted.only_if_there = true;
  const auto early = visit(node, box, wanted);
  REQUIRE(early->refused);
  CHECK(early->refused->code == errc::not_found);
  read_file_request file{"/workspace/x"};
  file.only_if_there = true;
  CHECK(node.sys.ask<file_channel>(box, file).reason().code == errc::not_found);
  CHECK(node.sys.ask<sandbox_status>(box, status_atom::value).value().state == "asleep");
  leave(node, visit_started(node, box, program())); // It makes the sandbox.
  const auto now = visit_started(node, box, wanted);
  CHECK(now->terminal);
  leave(node, now);
}

TEST_CASE("a program that cannot start says why, and leaves nothing", "[actors][terminal]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto one = visit(node, box, program());
  node.process().fail(errc::launch_failed, "no such program");
  node.sys.run();
  REQUIRE(one->refused);
  CHECK(one->refused->message == "no such program");
  CHECK(node.process().signals.empty());
  CHECK(node.sys.ask<sandbox_status>(box, status_atom::value).value().terminals == 0);
  leave(node, one);
}

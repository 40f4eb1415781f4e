#include "actors/survivor_note.hpp"
#include "tests/actors/fixture.hpp"

#include <algorithm>
#include <csignal>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

constexpr auto record = "idempotency/exec/key";

exec_request once_command(const std::string& key = "key", const std::string& digest = "digest") {
  auto request = command("echo hi");
  request.idempotency = {key, digest};
  return request;
}

pending<process_actor> ask(small_node& node, const sandbox_object_actor& box,
                           const exec_request& request = once_command()) {
  return node.sys.ask<process_actor>(box, request);
}

pending<replay_status> look(small_node& node, const sandbox_object_actor& box,
                            const idempotency_key& which = {"key", "digest"}) {
  return node.sys.ask<replay_status>(box, find_result{which, {}});
}

/// One that has run to its end.
void run_one(small_node& node, const sandbox_object_actor& box, const exec_request& request) {
  const auto asked = ask(node, box, request);
  node.process().start();
  node.sys.run();
  node.process().exit(0);
  node.process().complete_now();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
}

/// The next server: what the last one has left is there.
sandbox_object_actor adopted(small_node& node, std::vector<runtime::survivor> left) {
  auto place = std::make_shared<fake_sandbox>();
  place->left = std::move(left);
  node.engine.left["abc"] = place;
  return node.make_sandbox();
}

alarm_due due(small_node& node) {
  return {{kept_in::node, "abc", ""}, node.local.value("abc", std::string{actors::alarm_keys})};
}

} // namespace

TEST_CASE("a command that runs once is not started before that is durable", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  REQUIRE_NOTHROW(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value());
  node.local.hold_writes = true;
  const auto asked = ask(node, box);
  CHECK(node.place().processes.empty());
  node.local.let_go();
  node.sys.run();
  REQUIRE(node.place().processes.size() == 1);
  CHECK(node.process().spec.kept);
  const auto note = actors::survivor_note::read(node.process().spec.label);
  REQUIRE(note);
  CHECK(note->key == "key");
  CHECK(asked.open());
  node.process().start();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
}

TEST_CASE("a disk that does not take the key keeps the command from running", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  REQUIRE_NOTHROW(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value());
  node.local.write_error = error{errc::disk_full, "full"};
  CHECK(ask(node, box).reason().code == errc::disk_full);
  CHECK(node.place().processes.empty());
  node.local.write_error.reset();
  const auto again = ask(node, box);
  REQUIRE(node.place().processes.size() == 1);
}

TEST_CASE("all who ask with one key get one process, also when it is over", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto first = ask(node, box);
  const auto second = ask(node, box);
  const auto waits = look(node, box);
  CHECK(waits.value().known);
  CHECK_FALSE(waits.value().process);
  CHECK(node.place().processes.size() == 1);
  node.process().start();
  node.sys.run();
  CHECK(first.value() == second.value());
  node.process().print(output_stream::out, "hi");
  node.process().exit(3 << 8);
  node.process().complete_now();
  node.sys.run();
  const auto third = ask(node, box);
  CHECK(third.value() == first.value());
  const auto found = look(node, box).value();
  CHECK(found.process == first.value());
  CHECK(found.end == 1);
  const auto read = node.sys.ask<output_chunk>(third.value(), read_output{0, 100, true, 1}).value();
  REQUIRE(read.ended);
  CHECK(read.ended->exit_code == 3);
  CHECK(node.place().processes.size() == 1);
  CHECK(ask(node, box, once_command("key", "other")).reason().code == errc::idempotency_conflict);
  CHECK(look(node, box, {"key", "other"}).reason().code == errc::idempotency_conflict);
  CHECK_FALSE(look(node, box, {"another", "other"}).value().known);
}

TEST_CASE("who asks with a key that somebody else is about to use for something else is refused",
          "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  CHECK_FALSE(look(node, box).value().known);
  CHECK(look(node, box, {"key", "other"}).reason().code == errc::idempotency_conflict);
  CHECK_FALSE(look(node, box).value().known); // The same again may come twice.
  SECTION("until it is used") {
    run_one(node, box, once_command());
    CHECK(look(node, box, {"key", "other"}).reason().code == errc::idempotency_conflict);
  }
  SECTION("unless that one only asks what has become of it") {
    const find_result asked{{"another", "body"}, {}, false};
    CHECK_FALSE(node.sys.ask<replay_status>(box, asked).value().known);
    CHECK_FALSE(look(node, box, {"another", "other"}).value().known);
  }
  SECTION("but not for ever, should that one not come") {
    node.sys.advance(11s);
    CHECK_FALSE(look(node, box, {"key", "other"}).value().known);
    CHECK(look(node, box).reason().code == errc::idempotency_conflict);
  }
}

TEST_CASE("a result that is kept keeps no sandbox awake", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  run_one(node, box, once_command());
  for (int i = 0; i < 40; ++i)
    node.sys.advance(20s);
  CHECK(node.place().destroys == 1);
}

TEST_CASE("a command that could not be started may be asked for again", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto asked = ask(node, box);
  node.process().fail(errc::launch_failed, "no such directory");
  node.sys.run();
  CHECK(asked.reason().code == errc::launch_failed);
  CHECK_FALSE(look(node, box).value().known);
  const auto again = ask(node, box);
  REQUIRE(node.place().processes.size() == 2);
  CHECK(ask(node, box, once_command("key", "other")).reason().code == errc::idempotency_conflict);
  // Where it is not known whether it has run, nothing is run again.
  node.process().fail(errc::io_failed, "what was kept of it is not whole");
  node.sys.run();
  CHECK(again.reason().code == errc::io_failed);
  CHECK(ask(node, box).reason().code == errc::result_gone);
  CHECK(node.place().processes.size() == 2);
}

TEST_CASE("a command that a server on its way out has refused was not started",
          "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto asked = ask(node, box);
  node.process().fail(errc::node_unreachable, "the next server has it");
  node.sys.run();
  CHECK(asked.reason().code == errc::node_unreachable);
  CHECK(node.local.value("abc", record).empty());
  const auto again = ask(node, box);
  CHECK(node.place().processes.size() == 2);
}

TEST_CASE("a command of the last server that cannot be taken over may have run",
          "[actors][results][adoption]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto lost = ask(node, box);
  const auto label = node.process().spec.label;
  const auto next = adopted(node, {{7, runtime::survivor_kind::command, label, 0}});
  const auto asked = ask(node, next);
  auto& place = *node.engine.adoptions.back().place;
  place.processes.at(0)->fail(errc::node_unreachable, "the next server has it");
  node.sys.run();
  CHECK(asked.reason().code == errc::node_unreachable);
  CHECK(ask(node, next).reason().code == errc::result_gone);
  CHECK(place.processes.size() == 1);
}

TEST_CASE("a disk that does not take the doubt keeps the command from running again",
          "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto asked = ask(node, box);
  node.local.hold_writes = true;
  node.local.held_error = error{errc::disk_full, "full"};
  node.process().fail(errc::io_failed, "what was kept of it is not whole");
  node.sys.run();
  node.local.let_go();
  node.sys.run();
  node.local.held_error.reset();
  CHECK(asked.reason().code == errc::io_failed);
  CHECK(ask(node, box).reason().code == errc::result_gone);
  CHECK(node.place().processes.size() == 1);
}

TEST_CASE("what certainly did not run takes no room", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  for (std::size_t i = 0; i <= limits::kept_results_per_sandbox; ++i) {
    const auto asked = ask(node, box, once_command(std::to_string(i)));
    node.process().fail(errc::launch_failed, "no such directory");
    node.sys.run();
    REQUIRE(asked.reason().code == errc::launch_failed);
  }
  CHECK(node.local.disk.read("abc", "idempotency/")->empty());
  CHECK(ask(node, box).open());
}

TEST_CASE("what ran in a sandbox that has ended is not run in the next one", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  run_one(node, box, once_command());
  node.sys.advance(1s);
  const auto next = node.make_sandbox(); // As after the loss of all: nothing has survived.
  CHECK(look(node, next).reason().code == errc::result_gone);
  CHECK(ask(node, next).reason().code == errc::result_gone);
  CHECK(ask(node, next, once_command("key", "other")).reason().code == errc::idempotency_conflict);
  CHECK(node.place().processes.empty());
}

TEST_CASE("the next server has the results of the last one", "[actors][results][adoption]") {
  small_node node;
  const auto box = node.make_sandbox();
  run_one(node, box, once_command());
  const auto label = node.process().spec.label;
  const auto next = adopted(node, {{7, runtime::survivor_kind::command, label, 0, true}});
  const auto asked = look(node, next);
  CHECK(asked.open()); // Nobody knows yet what has become of it.
  auto& place = *node.engine.adoptions.back().place;
  REQUIRE(place.processes.size() == 1);
  place.processes[0]->start();
  place.processes[0]->exit(0);
  place.processes[0]->complete_now();
  node.sys.run();
  CHECK(asked.value().process);
  CHECK_NOTHROW(ask(node, next).value());
  CHECK(place.processes.size() == 1);
}

TEST_CASE("a command that the last server never came to start is run by the next one",
          "[actors][results][adoption]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto lost = ask(node, box);
  const auto next = adopted(node, {});
  CHECK_FALSE(look(node, next).value().known);
  const auto asked = ask(node, next);
  CHECK(node.engine.adoptions.back().place->processes.size() == 1);
}

TEST_CASE("where something could not be taken over, what is missing may have run",
          "[actors][results][adoption]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto lost = ask(node, box);
  const auto next = adopted(node, {{7, runtime::survivor_kind::command, "unreadable", 0}});
  CHECK(ask(node, next).reason().code == errc::result_gone);
  CHECK(node.engine.adoptions.back().place->disowned == std::vector<std::uint64_t>{7});
}

TEST_CASE("a result is let go of when its time is up, and its key is free", "[actors][results]") {
  small_node node;
  node.options->ladder.stop_after = 0s;
  const auto box = node.make_sandbox();
  run_one(node, box, once_command());
  node.sys.advance(1h);
  run_one(node, box, once_command("second"));
  const auto early = due(node);
  node.sys.advance(23h);
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, early).value());
  CHECK(node.local.value("abc", record).empty());
  CHECK_FALSE(node.local.value("abc", "idempotency/exec/second").empty());
  CHECK(node.place().processes[0].use_count() == 1); // Nobody holds it but the test.
  CHECK(node.place().processes[1].use_count() > 1);
  const auto again = ask(node, box, once_command("key", "other"));
  REQUIRE(node.place().processes.size() == 3);
  node.process().start();
  node.sys.advance(1h);
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, due(node)).value());
  CHECK(node.local.value("abc", "idempotency/exec/second").empty());
  CHECK_FALSE(node.local.value("abc", record).empty());
  // What still runs is kept until it does not.
  node.sys.advance(25h);
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, due(node)).value());
  CHECK(ask(node, box, once_command("key", "other")).value() == again.value());
  node.process().exit(0);
  node.process().complete_now();
  node.sys.advance(1h);
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, due(node)).value());
  CHECK(node.local.value("abc", record).empty());
  CHECK(due(node).record.empty());
}

TEST_CASE("a sandbox keeps a thousand results, and says so", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  for (std::size_t i = 0; i < limits::kept_results_per_sandbox; ++i)
    run_one(node, box, once_command(std::to_string(i)));
  CHECK(look(node, box).reason().code == errc::limit_reached);
  CHECK(ask(node, box).reason().code == errc::limit_reached);
  CHECK(look(node, box, {"0", "digest"}).value().known);
}

TEST_CASE("the newest foreground reader is the one that a command waits for", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto asked = ask(node, box);
  auto& process = node.process();
  process.start();
  node.sys.run();
  const auto handle = asked.value();
  const auto first = node.sys.ask<output_chunk>(handle, read_output{0, 100, true, 1});
  const auto second = node.sys.ask<output_chunk>(handle, read_output{0, 100, true, 2});
  CHECK(process.detached);
  process.detached = false;
  caf::anon_send(handle, detach_atom::value, std::uint64_t{1}); // It is not that one's any more.
  node.sys.run();
  CHECK_FALSE(process.detached);
  CHECK_FALSE(first.open());
  process.print(output_stream::out, "hi");
  node.sys.run();
  CHECK(second.value().frames.size() == 1);
  caf::anon_send(handle, detach_atom::value, std::uint64_t{2});
  node.sys.run();
  CHECK(process.detached);
}

TEST_CASE("a session's command with a key is kept as any other", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  auto request = once_command();
  request.session = "s";
  const auto asked = ask(node, box, request);
  auto& shell = *node.place().shells.at(0);
  shell.ready();
  node.sys.run();
  REQUIRE(shell.commands.size() == 1);
  CHECK(shell.commands[0].kept);
  const auto note = actors::survivor_note::read(shell.commands[0].label);
  REQUIRE(note);
  CHECK(note->key == "key");
  CHECK(note->session == "s");
  shell.processes[0]->start();
  shell.processes[0]->exit(0);
  shell.processes[0]->complete_now();
  node.sys.run();
  CHECK(ask(node, box, request).value() == asked.value());
  CHECK(shell.commands.size() == 1);
}

TEST_CASE("a session that was made with a key is made once, until it is deleted",
          "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto create = [&](const std::string& digest) {
    create_session_request wanted{.id = "s"};
    wanted.idempotency = {"key", digest};
    return node.sys.ask<caf::ok_atom>(box, wanted);
  };
  const auto first = create("digest");
  const auto second = create("digest");
  node.place().shells.at(0)->ready();
  node.sys.run();
  CHECK_NOTHROW(first.value());
  CHECK_NOTHROW(second.value());
  CHECK(node.place().shells.size() == 1);
  CHECK(create("other").reason().code == errc::idempotency_conflict);
  const auto next = adopted(node, {});
  create_session_request again{.id = "s"};
  again.idempotency = {"key", "digest"};
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(next, again).value());
}

TEST_CASE("a tree is written once in one start of a sandbox", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto ask_for = [&](const auto& whom, const std::string& digest,
                           const std::string& written_in = {}) {
    return node.sys.ask<write_once_answer>(whom,
                                           write_once_request{{"key", digest}, written_in, {}});
  };
  const auto first = ask_for(box, "digest").value();
  CHECK_FALSE(first.written);
  REQUIRE_FALSE(first.start.empty());
  CHECK(ask_for(box, "digest", first.start).value().written);
  CHECK(ask_for(box, "digest").value().written);
  CHECK(ask_for(box, "other").reason().code == errc::idempotency_conflict);
  node.sys.advance(1s);
  const auto next = node.make_sandbox(); // Its files are not there any more.
  CHECK_FALSE(ask_for(next, "digest").value().written);
  CHECK(ask_for(next, "digest").value().start != first.start);
  CHECK(ask_for(next, "digest", first.start).reason().code == errc::sandbox_not_running);
  CHECK_FALSE(ask_for(next, "digest").value().written);
}

// ---- Remembered commands

namespace {

exec_request remembered(const std::string& id, bool output) {
  auto request = command("echo hi");
  request.idempotency = {id, {}};
  request.rules = {true, true};
  request.remembered = remembered_command{output, "echo\nhi"};
  return request;
}

command_status known(small_node& node, const sandbox_object_actor& box, const std::string& id) {
  return node.sys.ask<command_status>(box, find_command{id}).value();
}

} // namespace

TEST_CASE("a remembered command is known by its id, and its end is durable", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  CHECK_FALSE(known(node, box, "a").known);
  const bool output = GENERATE(false, true);
  const auto asked = ask(node, box, remembered("a", output));
  node.process().start();
  node.sys.run();
  auto state = known(node, box, "a");
  CHECK(state.known);
  CHECK(state.output == output);
  CHECK(state.text == "echo\nhi");
  CHECK_FALSE(state.end);
  CHECK(state.started_ms == node.sys.time.unix_ms());
  CHECK(state.process == asked.value());
  node.sys.advance(5s);
  const auto ended = node.sys.time.unix_ms();
  node.process().exit(7 << 8);
  node.sys.run();
  CHECK(node.process().complete); // Its shell has ended, whoever else has its output.
  node.sys.advance(5s);
  state = known(node, box, "a");
  REQUIRE(state.end);
  CHECK(state.end->exit_code == 7);
  CHECK(state.ended_ms == ended);
  CHECK(static_cast<bool>(state.process) == output); // What nobody reads is let go of.
  CHECK(node.local.value("abc", "idempotency/exec/a").find("echo\nhi") != std::string::npos);
}

TEST_CASE("a remembered command's time limit kills it at once, and an interrupt lets it end",
          "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  auto request = remembered("a", true);
  SECTION("the time limit") {
    request.timeout_ms = 1000;
    const auto asked = ask(node, box, request);
    node.process().start();
    node.sys.run();
    node.sys.advance(1s);
    CHECK(node.process().signals == std::vector<int>{SIGKILL});
    node.process().exit(SIGKILL);
    node.sys.run();
    const auto state = known(node, box, "a");
    REQUIRE(state.end);
    CHECK(state.end->timed_out);
    CHECK(state.end->signal == SIGKILL);
  }
  SECTION("the interrupt") {
    const auto asked = ask(node, box, request);
    node.process().start();
    node.sys.run();
    CHECK(node.sys.ask<caf::ok_atom>(box, interrupt_command{"b"}).reason().code == errc::not_found);
    const auto interrupted = node.sys.ask<caf::ok_atom>(box, interrupt_command{"a"});
    CHECK(node.process().signals == std::vector<int>{SIGTERM});
    node.process().exit(SIGTERM);
    node.sys.run();
    CHECK(interrupted.open()); // Others of its group have their time.
    node.sys.advance(limits::interrupt_grace);
    CHECK(node.process().signals == std::vector<int>{SIGTERM, SIGKILL});
    CHECK_NOTHROW(interrupted.value());
    CHECK(node.sys.ask<caf::ok_atom>(box, interrupt_command{"a"}).reason().code ==
          errc::invalid_request);
  }
}

TEST_CASE("input goes to the command that is kept under its key", "[actors][results][input]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto write = [&](const std::string& key, input_piece piece) {
    return node.sys.ask<input_progress>(box, write_command_input{key, std::move(piece)});
  };
  auto request = remembered("a", true);
  request.input = GENERATE(true, false);
  const auto asked = ask(node, box, request);
  CHECK(node.process().spec.input == request.input);
  const auto early = write("a", {0, "one", false, {}}); // It does not run yet.
  CHECK(early.open());
  node.process().start();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
  CHECK(write("b", {}).reason().code == errc::not_found);
  if (!request.input) {
    CHECK(early.value().state == input_state::over);
    return;
  }
  CHECK(early.value().taken == 3);
  CHECK(write("a", {3, "two", true, {}}).value().taken == 6);
  CHECK(node.process().input == "onetwo");
  CHECK(node.process().input_closed);

  node.process().holds_input = true;
  auto waits = write("a", {6, "three", false, {}});
  CHECK(waits.open());
  SECTION("it is told what becomes of it") {
    node.process().held_input.front()({7, input_state::slow});
    node.sys.run();
    CHECK(waits.value().taken == 7);
    CHECK(waits.value().state == input_state::slow);
  }
  SECTION("no more waits than a sandbox has room for") {
    const std::string large(16u << 20, 'x');
    std::vector<pending<input_progress>> all;
    for (auto left = limits::waiting_sandbox_bytes - 5; left >= large.size(); left -= large.size())
      all.push_back(write("a", {{}, large, false, {}}));
    CHECK(all.back().open());
    CHECK(write("a", {{}, large, false, {}}).reason().code == errc::limit_reached);
    for (auto& tell : std::exchange(node.process().held_input, {}))
      tell({0, input_state::slow});
    node.sys.run();
    CHECK(write("a", {{}, large, false, {}}).open());
  }
}

TEST_CASE("a command for a sandbox that is not there makes none", "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  auto request = remembered("a", false);
  request.only_if_there = true;
  CHECK(ask(node, box, request).reason().code == errc::not_found);
  CHECK_FALSE(known(node, box, "a").known);
  CHECK(node.engine.creations.empty());
}

TEST_CASE("of the remembered commands that have ended the oldest goes for a new one",
          "[actors][results]") {
  small_node node;
  const auto box = node.make_sandbox();
  for (std::size_t i = 0; i <= limits::kept_results_per_sandbox; ++i) {
    const auto asked = ask(node, box, remembered("k" + std::to_string(i), false));
    node.process().start();
    node.sys.run();
    CHECK_NOTHROW(asked.value());
    node.process().exit(0);
    node.sys.run();
    node.sys.advance(1ms);
  }
  CHECK_FALSE(known(node, box, "k0").known);
  CHECK(known(node, box, "k1").known);
  CHECK(known(node, box, "k" + std::to_string(limits::kept_results_per_sandbox)).known);
}

// ---- At another node

TEST_CASE("what has run is not run again at the node to which its sandbox goes",
          "[actors][results][hand over]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto find = [&] {
    return node.sys
      .ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{})
      .value();
  };
  const auto box = caf::actor_cast<sandbox_object_actor>(find());
  run_one(node, box, once_command());
  const auto asked = ask(node, box, remembered("done", false));
  node.process().start();
  node.process().exit(0);
  node.sys.advance(1min);
  SECTION("while it runs") {}
  SECTION("without an activation") {
    node.sys.advance(11min);
    CHECK(ask(node, box).reason().code == errc::sandbox_not_running);
  }
  node.store.hold_writes = true;
  const auto left =
    node.sys.ask<caf::ok_atom>(directory, hand_over_atom::value, std::string{"abc"});
  CHECK(left.open()); // Before that is durable nobody else has the sandbox.
  CHECK_FALSE(node.local.value("abc", record).empty());
  CHECK(node.leases.held.contains("abc"));
  node.store.let_go();
  node.sys.run();
  CHECK_NOTHROW(left.value());
  CHECK(node.leases.held.empty());
  CHECK(node.local.value("abc", record).empty());
  CHECK(node.local.value("abc", "idempotency/exec/done").empty());
  CHECK_FALSE(node.store.value("abc", record).empty());
  CHECK(node.store.value("abc", "idempotency/exec/done").empty()); // No client has its id.

  const auto there = caf::actor_cast<sandbox_object_actor>(find());
  CHECK_FALSE(there == box);
  CHECK(look(node, there).reason().code == errc::result_gone);
  CHECK(ask(node, there).reason().code == errc::result_gone);
  CHECK(look(node, there, {"key", "other"}).reason().code == errc::idempotency_conflict);
  CHECK(node.place().processes.empty());
  run_one(node, there, once_command("new")); // And what has not, is.
  // From there it goes on, with what has come before and since.
  node.sys.ask<caf::ok_atom>(directory, hand_over_atom::value, std::string{"abc"}).value();
  CHECK_FALSE(node.store.value("abc", record).empty());
  CHECK_FALSE(node.store.value("abc", "idempotency/exec/new").empty());
  // For a day, and until it starts after that.
  node.sys.advance(24h);
  const auto later = caf::actor_cast<sandbox_object_actor>(find());
  CHECK(node.store.value("abc", record).empty());
  CHECK(node.store.value("abc", "idempotency/exec/new").empty());
  run_one(node, later, once_command("key", "other"));
}

TEST_CASE("a sandbox whose keys cannot be taken along stays, and can go later",
          "[actors][results][hand over]") {
  small_node node;
  const auto box = node.make_sandbox();
  run_one(node, box, once_command());
  node.store.write_error = error{errc::disk_full, "the disk is full"};
  CHECK(node.sys.ask<caf::ok_atom>(box, hand_over_atom::value).reason().code == errc::disk_full);
  CHECK_FALSE(node.local.value("abc", record).empty());
  node.store.write_error.reset();
  node.sys.advance(1s);
  CHECK(look(node, box).value().known); // It has started anew, here.
  CHECK(node.engine.creations.size() == 2);
  CHECK(node.place().processes.empty());
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, hand_over_atom::value).value());
  CHECK_FALSE(node.store.value("abc", record).empty());
}

TEST_CASE("keys that have come from another node count among those that a sandbox may keep",
          "[actors][results][hand over]") {
  small_node node;
  const auto box = node.make_sandbox();
  for (std::size_t i = 0; i < limits::kept_results_per_sandbox; ++i)
    run_one(node, box, once_command(std::to_string(i)));
  node.sys.ask<caf::ok_atom>(box, hand_over_atom::value).value();
  node.sys.advance(1h);
  const auto there = node.make_sandbox();
  CHECK(look(node, there, {"0", "digest"}).reason().code == errc::result_gone);
  CHECK(ask(node, there).reason().code == errc::limit_reached);
  node.sys.advance(23h);
  run_one(node, there, once_command());
}

// The parts that run commands, keep their results, and open files.
#include "tests/actors/sandbox/fake_core.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

waiting_command line(std::string text, std::string key = {}, std::string digest = "d") {
  exec_request wanted;
  wanted.command_line = std::move(text);
  wanted.idempotency = {std::move(key), std::move(digest)};
  return {std::move(wanted), nullptr};
}

/// Commands with their keys.
struct keyed_core : fake_core {
  commands jobs{*this};
  idempotency keys{*this};
  command_logs logs{*this, keys};
  command_records records{*this, keys, logs};
  idempotency::run_function run_it = [this](waiting_command what, const reply<process_actor>& to) {
    jobs.run(std::move(what), to);
  };

  keyed_core() {
    have({&jobs, &keys, &logs, &records});
    be_running();
  }
  owed<process_actor> ask(std::string text, std::string key, std::string digest = "d") {
    owed<process_actor> told;
    keys.run(line(std::move(text), std::move(key), std::move(digest)), run_it, told);
    return told;
  }
  void start(std::size_t which) { processes.at(which)->starting.back().deliver({}); }
};

} // namespace

TEST_CASE("a command runs in the image's shell, and keeps the sandbox in use", "[parts]") {
  fake_core core;
  commands jobs{core};
  core.have({&jobs});
  core.be_running();
  owed<process_actor> told;
  jobs.run(line("echo hi"), told);
  REQUIRE(core.processes.size() == 1);
  const auto& spec = core.processes[0]->options.spec;
  CHECK(spec.argv == std::vector<std::string>{"/bin/bash", "-c", "echo hi"});
  CHECK(spec.cwd == "/workspace");
  CHECK(told.open());
  core.processes[0]->starting.back().deliver({});
  told.got();
  CHECK(core.in_use());
  core.processes[0]->options.on_over();
  core.run();
  CHECK_FALSE(core.in_use());
}

TEST_CASE("a long line is read from a descriptor, and a shell that is no bash has its own",
          "[parts]") {
  fake_core core;
  commands jobs{core};
  core.have_image({{"host", true}, {}, "/bin/sh"});
  core.be_running();
  owed<process_actor> told;
  auto what = line("bash line");
  what.wanted.posix_line = std::string(limits::inline_command_bytes + 1, 'x');
  jobs.run(std::move(what), told);
  const auto& spec = core.processes[0]->options.spec;
  CHECK(spec.script.size() == limits::inline_command_bytes + 1);
  CHECK(spec.argv.back().find("cat") != std::string::npos);
}

TEST_CASE("a program runs without a shell, and its line is what it finds at a descriptor",
          "[parts]") {
  fake_core core;
  commands jobs{core};
  core.be_running();
  owed<process_actor> told;
  auto what = line("bytes");
  what.wanted.argv = {"tar", "-x", "a b"};
  jobs.run(std::move(what), told);
  const auto& spec = core.processes[0]->options.spec;
  CHECK(spec.argv == std::vector<std::string>{"tar", "-x", "a b"});
  CHECK(spec.script == "bytes");
}

TEST_CASE("so many commands run at once and no more", "[parts]") {
  fake_core core;
  commands jobs{core};
  core.fake_world::options->limits.processes = 2;
  core.be_running();
  std::vector<owed<process_actor>> all(3);
  for (auto& each : all)
    jobs.run(line("true"), each);
  CHECK(all[1].open());
  CHECK(all[2].code() == errc::limit_reached);
  owed<bool> probed;
  jobs.probe({}, probed);
  CHECK_FALSE(probed.got());
}

TEST_CASE("commands that wait count for what they say", "[parts]") {
  fake_core core;
  commands jobs{core};
  exec_request large;
  large.command_line = std::string(limits::waiting_sandbox_bytes, 'x');
  auto taken = jobs.take_memory(large);
  CHECK(taken);
  CHECK_FALSE(jobs.take_memory(large));
  taken.reset();
  CHECK(jobs.take_memory(large));
}

TEST_CASE("the end of the actor ends the commands", "[parts]") {
  fake_core core;
  commands jobs{core};
  core.have({&jobs});
  core.be_running();
  owed<process_actor> told;
  jobs.run(line("true"), told);
  core.ends();
  CHECK(core.processes[0]->killed);
}

TEST_CASE("a request with a key runs once, and all who ask get the same command", "[parts]") {
  keyed_core core;
  const auto first = core.ask("true", "k"), second = core.ask("true", "k");
  REQUIRE(core.processes.size() == 1);
  CHECK(core.processes[0]->options.spec.kept);
  core.start(0);
  first.got();
  second.got();
  core.ask("true", "k").got();
  CHECK(core.ask("false", "k", "other").code() == errc::idempotency_conflict);
  CHECK(core.processes.size() == 1);
}

TEST_CASE("nothing runs before its record is durable, nor if that fails", "[parts]") {
  keyed_core core;
  core.node.hold = true;
  const auto told = core.ask("true", "k");
  CHECK(core.processes.empty());
  CHECK(core.node.alarm == limits::results_kept);
  core.node.write_error = error{errc::disk_full, "full"};
  core.node.let_go();
  CHECK(told.code() == errc::disk_full);
  CHECK(core.processes.empty());
}

TEST_CASE("a command that certainly has not run can be asked for again", "[parts]") {
  keyed_core core;
  const auto first = core.ask("true", "k");
  core.processes[0]->starting.back().fail({errc::launch_failed, "no"});
  CHECK(first.code() == errc::launch_failed);
  CHECK(core.node.kept.empty());
  const auto doubtful = core.ask("true", "k");
  core.processes[1]->starting.back().fail({errc::sandbox_not_running, "it went"});
  CHECK(doubtful.code() == errc::sandbox_not_running);
  CHECK(core.ask("true", "k").code() == errc::result_gone);
}

TEST_CASE("of two requests with one key the one for something else is refused early", "[parts]") {
  keyed_core core;
  owed<replay_status> first, other, later;
  core.keys.find_process({{"k", "d"}}, first);
  CHECK_FALSE(first.got().known);
  core.keys.find_process({{"k", "other"}}, other);
  CHECK(other.code() == errc::idempotency_conflict);
  core.time.advance(10s); // The first client did not follow up.
  core.keys.find_process({{"k", "other"}}, later);
  CHECK_FALSE(later.got().known);
}

TEST_CASE("a result of an earlier start is gone", "[parts]") {
  keyed_core core;
  core.ask("true", "k");
  core.start(0);
  core.ends();
  core.cluster.kept["started_ms"] = "8";
  CHECK(core.ask("true", "k").code() == errc::result_gone);
}

TEST_CASE("an answer that waits for a command of an earlier server is given", "[parts]") {
  keyed_core core;
  core.node.kept["idempotency/exec/k"] = idempotency_record{"d", core.time.unix_ms(), "7"}.text();
  const auto told = core.keys.resume("k");
  REQUIRE(told);
  CHECK_FALSE(core.keys.resume("k"));
  owed<replay_status> asked, at_end;
  core.keys.find_process({{"k", "d"}}, asked);
  CHECK(asked.open());
  core.processes.push_back(std::make_shared<fake_child_process>());
  told->deliver({});
  CHECK(asked.got().known);
  CHECK(asked.got().end == 5);

  core.node.kept["idempotency/exec/l"] = idempotency_record{"d", core.time.unix_ms(), "7"}.text();
  static_cast<void>(core.keys.resume("l"));
  core.keys.find_process({{"l", "d"}}, at_end);
  core.ends();
  CHECK(at_end.code() == errc::sandbox_not_running);
}

TEST_CASE("records expire, and those of commands that run stay", "[parts]") {
  keyed_core core;
  core.ask("true", "k");
  core.start(0);
  core.ask("true", "l");
  core.start(1);
  core.processes[1]->now.ended = true;
  core.processes[1]->options.on_over();
  core.run();
  core.time.advance(limits::results_kept);
  core.keys.expire({});
  CHECK(core.node.kept.count("idempotency/exec/k") == 1);
  CHECK(core.node.kept.count("idempotency/exec/l") == 0);
  CHECK(core.node.alarm == limits::kept_result_pause);
}

TEST_CASE("a tree is written once in each start", "[parts]") {
  keyed_core core;
  owed<write_once_answer> asked, told, again, late;
  core.keys.write_once({{"k", "d"}}, asked);
  CHECK_FALSE(asked.got().written);
  core.keys.write_once({{"k", "d"}, asked.got().start}, told);
  CHECK(told.got().written);
  core.keys.write_once({{"k", "d"}}, again);
  CHECK(again.got().written);
  core.keys.write_once({{"k", "d"}, "an earlier one"}, late);
  CHECK(late.code() == errc::sandbox_not_running);
}

TEST_CASE("what has become of a remembered command outlives the command", "[parts]") {
  keyed_core core;
  auto what = line("true", "id");
  what.wanted.remembered = remembered_command{false, "mine"};
  owed<process_actor> runs;
  core.keys.run(std::move(what), core.run_it, runs);
  owed<command_status> early, running, over;
  core.records.find({"id"}, early);
  CHECK(early.open()); // It is known once it runs.
  core.start(0);
  CHECK(early.got().known);
  core.records.find({"id"}, running);
  CHECK(running.got().text == "mine");
  CHECK_FALSE(running.got().end);
  core.processes[0]->now = {true, {.exit_code = 3}};
  core.processes[0]->options.on_over();
  core.run();
  core.records.find({"id"}, over);
  CHECK(over.got().end->exit_code == 3);
  CHECK(over.got().ended_ms == core.time.unix_ms());
  owed<command_status> unknown;
  core.records.find({"no"}, unknown);
  CHECK_FALSE(unknown.got().known);
}

namespace {

/// As an earlier server has left it: asked for a second before this one began.
void leave_unanswered(keyed_core& core, const std::string& key, command_state state = {}) {
  core.fake_world::options->served_since_ms = core.time.unix_ms();
  state.output = true;
  state.text = "text of " + key;
  core.node.kept["idempotency/exec/" + key] =
    idempotency_record{"words", core.time.unix_ms() - 1000, "7", text_of(state)}.text();
}

owed<process_actor> ask_by_digest(keyed_core& core, const std::string& key,
                                  const std::string& digest = "words") {
  auto what = line("true", key, digest);
  what.wanted.idempotency.by_digest = true;
  what.wanted.remembered = remembered_command{true, "text of " + key};
  owed<process_actor> told;
  core.keys.run(std::move(what), core.run_it, told);
  return told;
}

} // namespace

TEST_CASE("a request that a lost server has not answered is known by its words", "[parts]") {
  keyed_core core;
  leave_unanswered(core, "first");
  const bool runs = GENERATE(true, false);
  const auto resumed = runs ? core.keys.resume("first") : std::nullopt;
  const auto other = ask_by_digest(core, "other", "other words");
  CHECK(core.processes.size() == 1);
  const auto again = ask_by_digest(core, "second");
  CHECK(again.code() == errc::request_known);
  CHECK(again.given->front().reason().message == "text of first");
  const auto told = ask_by_digest(core, "first");
  if (runs) {
    CHECK(told.open());
    core.processes.push_back(std::make_shared<fake_child_process>());
    resumed->deliver({});
    CHECK(core.processes.size() == 2);
  } else { // It has not come to run, and does now, once.
    REQUIRE(core.processes.size() == 2);
    core.start(1);
  }
  told.got();
  // The same words once more are another command.
  ask_by_digest(core, "third");
  CHECK(core.processes.size() == 3);
  CHECK(core.node.kept.contains("idempotency/exec/third"));
  // And for the next server, as the first one was answered.
  const auto record = idempotency_record::read(core.node.kept.at("idempotency/exec/first"));
  CHECK(command_state_of(record).told);
}

TEST_CASE("the same words are another command once the first was answered, or is old", "[parts]") {
  keyed_core core;
  SECTION("an earlier server has answered it") {
    command_state state;
    state.told = true;
    leave_unanswered(core, "first", state);
  }
  SECTION("it was asked of this server") {
    leave_unanswered(core, "first");
    core.fake_world::options->served_since_ms -= 1000;
  }
  SECTION("it was in an earlier start of the sandbox") {
    leave_unanswered(core, "first");
    core.cluster.kept["started_ms"] = "8";
  }
  SECTION("its client has given up") {
    leave_unanswered(core, "first");
    core.time.advance(limits::repeat_patience);
  }
  ask_by_digest(core, "second");
  REQUIRE(core.processes.size() == 1);
  core.start(0);
  CHECK(
    command_state_of(idempotency_record::read(core.node.kept.at("idempotency/exec/second"))).told);
}

TEST_CASE("what is remembered of commands has a ceiling, and those that have ended make room",
          "[parts]") {
  keyed_core core;
  const auto ask = [&](const std::string& key) {
    auto what = line("true", key);
    what.wanted.remembered =
      remembered_command{true, std::string(limits::kept_result_bytes / 2 - 4096, 't')};
    owed<process_actor> told;
    core.keys.run(std::move(what), core.run_it, told);
    return told;
  };
  ask("a");
  core.start(0);
  ask("b");
  core.start(1);
  CHECK(ask("c").code() == errc::limit_reached); // Both run.
  core.processes[0]->be_over();
  core.run();
  ask("c");
  CHECK(core.processes.size() == 3);
  CHECK_FALSE(core.node.kept.contains("idempotency/exec/a"));
  CHECK(core.node.kept.contains("idempotency/exec/b"));
}

TEST_CASE("only a remembered command that runs is interrupted", "[parts]") {
  keyed_core core;
  auto what = line("true", "id");
  what.wanted.remembered = remembered_command{true, ""};
  owed<process_actor> runs;
  core.keys.run(std::move(what), core.run_it, runs);
  owed<caf::ok_atom> early, unknown, good;
  core.records.interrupt({"id"}, early);
  CHECK(early.code() == errc::invalid_request);
  core.records.interrupt({"no"}, unknown);
  CHECK(unknown.code() == errc::not_found);
  core.start(0);
  core.records.interrupt({"id"}, good);
  good.got();
  CHECK(core.processes[0]->interrupted);
}

TEST_CASE("a record of a request is read as it was written", "[parts]") {
  command_state known{true, true, "two\nlines", 11, 12, process_end{}};
  known.end->exit_code = 137;
  known.end->signal = 9;
  known.end->lost = true;
  const idempotency_record made{"d", 11, "7", text_of(known)};
  const auto read = idempotency_record::read(made.text());
  CHECK(read.digest == "d");
  CHECK(read.which == "7");
  const auto state = command_state_of(read);
  CHECK(state.text == "two\nlines");
  CHECK(state.output);
  CHECK(state.started_ms == 11);
  CHECK(state.ended_ms == 12);
  CHECK(state.end->signal == 9);
  CHECK(state.end->lost);
}

TEST_CASE("a file operation keeps the sandbox awake, and makes the session that it names",
          "[parts]") {
  fake_core core;
  std::vector<std::string> found;
  files channels{core, [&](const std::string& id) -> result<void> {
                   found.push_back(id);
                   if (id == "no")
                     return error{errc::limit_reached, "as many as it may"};
                   return {};
                 }};
  core.be_running();
  owed<file_channel> first, refused;
  channels.read({"/a", "one"}, first);
  CHECK(first.got().socket);
  CHECK(found == std::vector<std::string>{"one"});
  CHECK(core.in_use());
  channels.write({"/a", "no"}, refused);
  CHECK(refused.code() == errc::limit_reached);
  CHECK(core.place->files == std::vector<std::string>{"read /a"});
}

TEST_CASE("the paths of a file task are expanded below the working directory", "[parts]") {
  fake_core core;
  files channels{core, nullptr};
  owed<file_channel> nowhere, made, unset;
  file_task_request wanted{file_task::read, {"$HOME/../x", "0", "1"}, true};
  channels.run_task(wanted, nowhere);
  CHECK(nowhere.code() == errc::not_found);
  core.be_running();
  channels.run_task(wanted, made);
  made.got();
  CHECK(core.place->files.back().find("/home/x") != std::string::npos);
  wanted.words[0] = "$NONE";
  channels.run_task(wanted, unset);
  CHECK(unset.code() == errc::invalid_request);
}

TEST_CASE("results of an earlier version are read", "[parts]") {
  keyed_core core;
  const auto now = std::to_string(core.time.unix_ms());
  core.node.kept["idempotency/exec/old"] = "d\n" + now + "\n6";
  core.node.kept["idempotency/exec/doubt"] = "d\n" + now + "\n?";
  core.node.kept["idempotency/exec/id"] =
    "d\n" + now + "\n6\n1 77 137 9 1 500 0 1048576 0\nmy\ntext";
  core.node.kept["idempotency/hydrate/k"] = "d\n" + now + "\n7";
  CHECK(core.ask("true", "old").code() == errc::result_gone);
  CHECK(core.ask("true", "doubt").code() == errc::result_gone);
  owed<command_status> found;
  core.records.find({"id"}, found);
  CHECK(found.got().text == "my\ntext");
  CHECK(found.got().ended_ms == 77);
  CHECK(found.got().end->exit_code == 137);
  CHECK(found.got().end->timed_out);
  CHECK(found.got().end->memory_bytes == 1048576);
  owed<write_once_answer> written;
  core.keys.write_once({{"k", "d"}}, written);
  CHECK(written.got().written);
}

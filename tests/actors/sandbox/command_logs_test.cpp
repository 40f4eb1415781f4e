// The commands of runs: their list, and what they have said when their run is over. Without an
// actor system; the directory of logs is a real one.
#include "tests/actors/sandbox/fake_core.hpp"
#include "tests/support/temp_dir.hpp"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <sys/stat.h>
#include <unistd.h>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

/// A sandbox that has runs, and keeps what their commands have said.
class kept_box final {
public:
  explicit kept_box(bool keeps = true)
      : logs(std::make_unique<runtime::kept_logs>(
          directory.path().string(), runtime::kept_logs::ceilings{1u << 20, 1u << 20, 100, 0})) {
    box.cluster.kept["created_ms"] = "1";
    if (keeps)
      box.fake_world::options->logs = logs.get();
    box.run();
  }
  ~kept_box() { logs.reset(); }

  /// Until the directory and the sandbox have done all that has been asked of them.
  void settle() {
    for (int i = 0; i < 12; ++i) {
      box.run();
      std::promise<void> done;
      logs->when_done([&] { done.set_value(); });
      done.get_future().get();
      done = {};
    }
    box.run();
  }
  std::uint64_t begin() {
    owed<run_report> told;
    box.parts.runs_.begin({300'000}, told);
    settle();
    return told.got().run.number;
  }
  owed<run_report> ask_to_stop(std::uint64_t run) {
    owed<run_report> told;
    box.parts.runs_.stop({run}, told);
    settle();
    return told;
  }
  void stop(std::uint64_t run) { ask_to_stop(run).got(); }

  /// It runs, and has a log with these words.
  fake_child_process& start(std::uint64_t run, const std::string& key,
                            const std::string& says = "x", bool begins = true) {
    exec_request wanted;
    wanted.argv = {"program", key};
    wanted.only_if_there = true;
    wanted.context.run = run;
    wanted.idempotency = {key, key};
    wanted.remembered = remembered_command{true, "text of " + key};
    box.parts.idempotency_.run(
      waiting_command{wanted, nullptr, nullptr},
      [this](waiting_command what, const reply<process_actor>& to) {
        box.parts.commands_.run(std::move(what), to);
      },
      owed<process_actor>{});
    box.run();
    auto& made = *box.processes.back();
    made.log = file_of(says);
    if (begins) {
      for (const auto& each : std::exchange(made.starting, {}))
        each.deliver({});
      box.run();
    }
    return made;
  }
  command_status find(const std::string& key, std::uint64_t run, bool opens_log = true) {
    owed<command_status> told;
    box.parts.command_records_.find({key, {}, run, opens_log}, told);
    settle();
    while (told.open()) { // The heads are read on another thread.
      REQUIRE(box.mailbox->wait());
      box.run();
    }
    return told.got();
  }
  owed<command_list> list(std::uint64_t run) {
    owed<command_list> told;
    box.parts.command_records_.list({run}, told);
    settle();
    return told;
  }
  std::vector<std::string> ids(std::uint64_t run) {
    std::vector<std::string> all;
    for (const auto& each : list(run).got().commands)
      all.push_back(each.id);
    return all;
  }
  bool has_file(const std::string& key) const { return fs::exists(directory.path() / "abc" / key); }
  /// Of the last log that was opened.
  std::string read() {
    REQUIRE_FALSE(box.log_readers.empty());
    const auto piece = box.log_readers.back().log->log.read(0, 1u << 20);
    return piece.frames.empty() ? "" : piece.frames.front().bytes;
  }

  temp_dir directory;
  std::unique_ptr<runtime::kept_logs> logs;
  whole_sandbox box;

private:
  std::shared_ptr<unique_fd> file_of(const std::string& text) {
    runtime::output_log log{directory.path().string(), 1u << 20};
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    const unique_fd from{ends[0]}, to{ends[1]};
    REQUIRE(::write(to.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    REQUIRE(log.append_from(from.get(), output_stream::out) == static_cast<ssize_t>(text.size()));
    return std::make_shared<unique_fd>(::fcntl(log.file(), F_DUPFD_CLOEXEC, 0));
  }
};

process_end exited(int code) {
  process_end end;
  end.exit_code = code;
  return end;
}

} // namespace

TEST_CASE("the commands of a run are listed, the newest first", "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  CHECK(it.ids(run).empty());
  auto& first = it.start(run, "a");
  it.box.time.advance(1s);
  it.start(run, "c");
  it.start(run, "b");
  CHECK(it.ids(run) == std::vector<std::string>{"c", "b", "a"});
  auto all = it.list(run).got().commands;
  CHECK(all[2].text == "text of a");
  CHECK_FALSE(all[2].end);
  first.be_over(exited(7));
  it.settle();
  all = it.list(run).got().commands;
  REQUIRE(all[2].end);
  CHECK(all[2].end->exit_code == 7);
  CHECK_FALSE(all[1].end);
  CHECK(it.list(run + 1).code() == errc::not_found);

  INFO("one that does not run yet is none of them");
  auto& late = it.start(run, "d", "x", false);
  CHECK(it.ids(run).size() == 3);
  for (const auto& each : std::exchange(late.starting, {}))
    each.fail({errc::launch_failed, "no such program"});
  late.be_over();
  it.settle();
  CHECK(it.ids(run).size() == 3);

  INFO("nor is that of another run");
  it.stop(run);
  const auto next = it.begin();
  it.start(next, "e");
  CHECK(it.ids(next) == std::vector<std::string>{"e"});
  CHECK(it.ids(run) == std::vector<std::string>{"c", "b", "a"});
}

TEST_CASE("a list of commands has a ceiling, and the newest are in it", "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  for (int i = 0; i < 3; ++i) {
    it.start(run, std::to_string(i));
    it.box.time.advance(1s);
  }
  auto& record = it.box.node.kept["idempotency/exec/1"];
  record += std::string(limits::command_list_bytes, 'x');
  CHECK(it.ids(run) == std::vector<std::string>{"2"});
}

TEST_CASE("what commands have said is read when their run is over", "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  it.start(run, "ended", "its words").be_over(exited(3));
  auto& cut = it.start(run, "cut", "some words");
  cut.ends_when_asked = GENERATE(true, false);
  it.settle();
  auto& place = it.box.newest();
  place.hold_destroy = true;
  const auto stopped = it.ask_to_stop(run);
  it.box.advance(500ms);
  it.settle();
  INFO("they have their names before the sandbox goes");
  CHECK(it.has_file("ended"));
  CHECK(it.has_file("cut"));
  CHECK(stopped.open());
  REQUIRE(place.destroys == 1);
  place.finish_destroy();
  it.settle();
  if (!cut.ends_when_asked) {
    INFO("the stop waits for what they say with their last breath");
    CHECK(stopped.open());
    process_end lost;
    lost.lost = true;
    cut.be_over(lost);
    it.settle();
  }
  CHECK(stopped.got().run.state == run_state::stopped);

  for (const bool put_away : {false, true}) {
    if (put_away)
      it.box.ends();
    auto found = it.find("ended", run);
    CHECK(found.end->exit_code == 3);
    CHECK_FALSE(found.log_gone);
    CHECK(it.read() == "its words");
    CHECK(found.end_offset == it.box.log_readers.back().log->log.end());
    CHECK(it.box.log_readers.back().end.exit_code == 3);
    found = it.find("cut", run);
    REQUIRE(found.end);
    CHECK(found.end->lost == !cut.ends_when_asked);
    CHECK(it.read() == "some words");
    CHECK_FALSE(it.box.log_readers.back().end.lost);
    CHECK(it.ids(run).size() == 2);
    INFO("who does not ask for the log opens none");
    const auto before = it.box.log_readers.size();
    CHECK(it.find("ended", run, false).end);
    CHECK(it.box.log_readers.size() == before);
  }
}

TEST_CASE("a run that ends by itself keeps what its commands have said", "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  auto& cut = it.start(run, "cut", "some words");
  it.box.engine.creations.back().end();
  it.settle();
  CHECK(it.has_file("cut"));
  process_end lost;
  lost.lost = true;
  cut.be_over(lost);
  it.settle();
  const auto found = it.find("cut", run);
  CHECK(found.end->lost);
  CHECK(it.read() == "some words");
}

TEST_CASE("until it is kept, a log is read from its process", "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  auto& ended = it.start(run, "a");
  ended.holds_log = true;
  ended.be_over(exited(0));
  it.settle();
  it.box.engine.creations.back().end();
  it.settle();
  REQUIRE(ended.held_log.size() == 1);
  CHECK_FALSE(it.find("a", run).log_gone);
  CHECK(it.box.log_readers.empty());
  std::exchange(ended.held_log, {}).back().deliver({ended.log});
  it.settle();
  CHECK_FALSE(it.find("a", run).log_gone);
  CHECK(it.read() == "x");
}

TEST_CASE("a disk that stands still does not keep a run from its end", "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  it.start(run, "a");
  std::promise<void> goes_on;
  it.logs->when_done([wait = goes_on.get_future().share()] { wait.get(); });
  owed<run_report> told;
  it.box.parts.runs_.stop({run}, told);
  it.box.run();
  CHECK(told.open());
  it.box.advance(limits::kept_logs_patience);
  it.box.run();
  CHECK(told.got().run.state == run_state::stopped);
  goes_on.set_value();
  it.settle();
  CHECK(it.has_file("a"));
}

TEST_CASE("a log that is not there any more is told as gone", "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  it.start(run, "a").be_over(exited(0));
  it.start(run, "part").be_over(exited(0));
  it.settle();
  it.stop(run);
  SECTION("above a ceiling") {
    it.logs->remove("abc", "a");
    const auto found = it.find("a", run);
    CHECK(found.end);
    CHECK(found.log_gone);
    CHECK(it.box.log_readers.empty());
  }
  SECTION("a part of it") { // A power cut has come before the disk had all.
    REQUIRE(::truncate((it.directory.path() / "abc" / "part").c_str(), 4096 + 3) == 0);
    CHECK(it.find("part", run).log_gone);
    CHECK_FALSE(it.find("a", run).log_gone);
  }
}

TEST_CASE("without a place for them logs end with their sandbox's object", "[parts][logs]") {
  kept_box it{false};
  const auto run = it.begin();
  it.start(run, "a").be_over(exited(0));
  it.settle();
  it.stop(run);
  it.box.ends();
  const auto found = it.find("a", run);
  CHECK(found.end);
  CHECK(found.log_gone);
  CHECK_FALSE(it.find("a", run, false).log_gone);
}

TEST_CASE("the commands of a run go with it", "[parts][logs]") {
  kept_box it;
  const auto first = it.begin();
  it.start(first, "a").be_over(exited(0));
  it.settle();
  it.stop(first);
  const auto second = it.begin();
  it.start(second, "b").be_over(exited(0));
  it.settle();
  it.stop(second);
  SECTION("when so many have followed") {
    for (std::size_t i = 0; i + 1 < limits::kept_runs; ++i)
      it.stop(it.begin());
    CHECK_FALSE(it.has_file("a"));
    CHECK(it.has_file("b"));
    CHECK(it.list(first).code() == errc::not_found);
    CHECK_FALSE(it.find("a", first).known);
    CHECK(it.ids(second) == std::vector<std::string>{"b"});
  }
  SECTION("when the sandbox is deleted") {
    owed<caf::ok_atom> gone;
    it.box.parts.teardown_.remove({}, gone);
    it.settle();
    gone.got();
    CHECK(fs::is_empty(it.directory.path()));
    CHECK(it.box.node.kept.empty());
  }
  SECTION("when it leaves the node, and then that is said") {
    CHECK_FALSE(it.list(first).got().elsewhere); // A node alone is where all has been.
    it.box.fake_world::options->ours = [](const std::string&) { return true; };
    owed<caf::ok_atom> left;
    it.box.parts.teardown_.hand_over(left);
    it.settle();
    left.got();
    CHECK(fs::is_empty(it.directory.path()));
    it.box.set_refusal(std::nullopt); // As the object that finds it again.
    CHECK(it.list(first).got().elsewhere);
    CHECK(it.find("a", first).elsewhere);
  }
}

TEST_CASE("who deletes a sandbox waits until its logs are gone, but not for ever",
          "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  it.start(run, "a").be_over(exited(0));
  it.settle();
  it.stop(run);
  CHECK(it.has_file("a"));
  std::promise<void> stands;
  it.logs->when_done([&] { stands.get_future().get(); });
  owed<caf::ok_atom> gone;
  it.box.parts.teardown_.remove({}, gone);
  it.box.run();
  CHECK(gone.open());
  SECTION("the disk goes on") {
    stands.set_value();
    it.settle();
    gone.got();
    CHECK_FALSE(it.has_file("a"));
  }
  SECTION("it stands still") {
    it.box.advance(limits::kept_logs_patience);
    it.box.run();
    gone.got();
    stands.set_value();
  }
  it.settle();
  CHECK(it.box.cluster.kept.empty());
}

TEST_CASE("commands of runs do not go by their age, and the oldest make room", "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  it.start(run, "a").be_over(exited(0));
  it.settle();
  it.stop(run);
  it.box.time.advance(limits::results_kept + 1h);
  it.box.parts.idempotency_.expire({});
  it.settle();
  CHECK(it.has_file("a"));
  CHECK(it.ids(run) == std::vector<std::string>{"a"});
  CHECK(it.box.node.alarm == limits::results_kept);

  const auto next = it.begin();
  for (std::size_t i = 0; i + 1 < limits::kept_results_per_sandbox; ++i)
    it.box.node.kept["idempotency/exec/n" + std::to_string(i)] =
      "d\n" + std::to_string(it.box.time.unix_ms()) + "\n7\n1 5 0 0 0 0 0 0 0\ntext";
  it.start(next, "b");
  it.settle();
  CHECK_FALSE(it.has_file("a"));
  CHECK_FALSE(it.find("a", run).known);
}

TEST_CASE("a run that has begun before this version knows its commands by their texts",
          "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  it.box.node.kept["idempotency/exec/a"] = "d\n5\n7\n1 9 3 0 0 0 0 0 0\nold text";
  const auto all = it.list(run).got().commands;
  REQUIRE(all.size() == 1);
  CHECK(all[0].text == "old text");
  CHECK(all[0].end->exit_code == 3);
  CHECK(it.find("a", run).log_gone);
}

TEST_CASE("a run that an earlier server has begun is known here", "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  std::erase_if(it.box.node.kept,
                [](const auto& each) { return each.first.starts_with("known_"); });
  it.box.parts.runs_.running(true);
  it.settle();
  it.stop(run);
  CHECK_FALSE(it.list(run).got().elsewhere);
}

TEST_CASE("what a run has kept of its commands holds none of their actors", "[parts][logs]") {
  kept_box it;
  const auto run = it.begin();
  auto& command = it.start(run, "a");
  const auto held = it.box.processes.back();
  command.be_over();
  it.settle();
  it.stop(run);
  // The test has it, and the world of the test: no timer has.
  CHECK(held.use_count() == 2);
}

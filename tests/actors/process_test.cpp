#include "actors/process.hpp"
#include "tests/actors/fixture.hpp"

#include <csignal>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// A started command, and what a test needs to play its part.
struct running_command {
  test_system sys;
  std::shared_ptr<fake_sandbox> place = std::make_shared<fake_sandbox>();
  int over = 0;
  process_actor handle;

  explicit running_command(std::optional<std::int64_t> timeout_ms = std::nullopt) {
    actors::process_options options;
    options.place = place;
    options.timeout_ms = timeout_ms;
    options.on_over = [this] { ++over; };
    auto made = actors::spawn_process(sys.get(), std::move(options));
    const auto started = sys.ask<process_actor>(made, start_atom::value);
    process().start();
    sys.run();
    handle = started.value();
  }
  ~running_command() {
    caf::anon_send_exit(handle, caf::exit_reason::user_shutdown);
    handle = nullptr;
    sys.run();
  }

  fake_process& process() { return *place->processes.front(); }
  pending<output_chunk> read(std::uint64_t offset, bool attached = true, std::uint64_t reader = 0) {
    return sys.ask<output_chunk>(handle, read_output{offset, 1024, attached, reader});
  }
  void leave(std::uint64_t reader) {
    caf::anon_send(handle, detach_atom::value, reader);
    sys.run();
  }
};

} // namespace

TEST_CASE("a reader gets what there is, then waits for more, then hears of the end",
          "[actors][process]") {
  running_command cmd;
  cmd.process().print(output_stream::out, "one\n");
  auto first = cmd.read(0).value();
  REQUIRE(first.frames.size() == 1);
  CHECK(first.frames[0].bytes == "one\n");
  CHECK(first.frames[0].stream == output_stream::out);
  CHECK_FALSE(first.ended);
  const auto second = cmd.read(first.next_offset);
  CHECK(second.open());
  cmd.process().print(output_stream::err, "two\n");
  cmd.sys.run();
  CHECK(second.value().frames[0].stream == output_stream::err);
  cmd.process().exit(7 << 8);
  cmd.process().complete_now();
  cmd.sys.run();
  const auto last = cmd.read(second.value().next_offset).value();
  REQUIRE(last.ended);
  CHECK(last.ended->exit_code == 7);
  CHECK_FALSE(last.ended->timed_out);
  CHECK(cmd.over == 1);
}

TEST_CASE("whoever writes to a command that ends with its node is not left without an answer",
          "[actors][process][input]") {
  test_system sys;
  auto place = std::make_shared<fake_sandbox>();
  actors::process_options options;
  options.place = place;
  options.spec.input = true;
  auto made = actors::spawn_process(sys.get(), std::move(options));
  const auto none = sys.ask<input_progress>(made, input_piece{{}, "early", false, {}});
  CHECK(none.value().state == input_state::over); // It has not been started.
  const auto started = sys.ask<process_actor>(made, start_atom::value);
  auto& process = *place->processes.front();
  process.start();
  sys.run();
  CHECK(sys.ask<input_progress>(made, input_piece{0, "one", false, {}}).value().taken == 3);
  CHECK(process.input == "one");
  process.holds_input = true;
  const auto waits = sys.ask<input_progress>(made, input_piece{3, "two", false, {}});
  CHECK(waits.open());
  caf::anon_send_exit(made, caf::exit_reason::user_shutdown);
  sys.run();
  CHECK(waits.reason().code == errc::node_unreachable);
}

TEST_CASE("a command that a signal ended is reported as a shell reports it", "[actors][process]") {
  running_command cmd;
  cmd.process().exit(SIGKILL);
  cmd.process().complete_now();
  cmd.sys.run();
  CHECK(cmd.read(0).value().ended->exit_code == 137);
}

TEST_CASE("the end of a command is not the end of its output", "[actors][process]") {
  running_command cmd;
  const auto asked = cmd.read(0);
  cmd.process().exit(0);
  cmd.sys.run();
  CHECK(asked.open());
  CHECK(cmd.over == 0);
  cmd.process().complete_now();
  cmd.sys.run();
  CHECK(asked.value().ended);
  CHECK(cmd.over == 1);
}

TEST_CASE(
  "time that is up: TERM, three seconds, KILL, and what clings to the output is not waited for",
  "[actors][process]") {
  running_command cmd{1000};
  cmd.process().print(output_stream::out, "so far\n");
  cmd.sys.advance(999ms);
  CHECK(cmd.process().signals.empty());
  cmd.sys.advance(1ms);
  CHECK(cmd.process().signals == std::vector{SIGTERM});
  cmd.sys.advance(2999ms);
  CHECK(cmd.process().signals == std::vector{SIGTERM});
  cmd.sys.advance(1ms);
  CHECK(cmd.process().signals == std::vector{SIGTERM, SIGKILL});
  cmd.process().exit(SIGKILL);
  cmd.sys.run();
  CHECK(cmd.process().cut);
  cmd.sys.run();
  const auto end = cmd.read(1).value();
  REQUIRE(end.ended);
  CHECK(end.ended->timed_out);
}

TEST_CASE("a background child that holds the output open is ended when the time is up",
          "[actors][process]") {
  running_command cmd{1000};
  cmd.process().exit(0);
  cmd.sys.advance(1s);
  CHECK(cmd.process().signals == std::vector{SIGTERM});
  cmd.sys.advance(3s);
  CHECK(cmd.process().signals == std::vector{SIGTERM, SIGKILL});
  CHECK(cmd.process().cut);
  cmd.sys.run();
  CHECK(cmd.read(0).value().ended->timed_out);
}

TEST_CASE("a command that has ended in time is left alone", "[actors][process]") {
  running_command cmd{1000};
  cmd.process().exit(0);
  cmd.process().complete_now();
  cmd.sys.advance(10s);
  CHECK(cmd.process().signals.empty());
  CHECK_FALSE(cmd.read(0).value().ended->timed_out);
}

TEST_CASE("no time at all is over at once", "[actors][process]") {
  for (const std::int64_t none : {0, -5}) {
    running_command cmd{none};
    cmd.sys.advance(0ms);
    CHECK(cmd.process().signals == std::vector{SIGTERM});
  }
}

TEST_CASE(
  "a sandbox that ends around a command: first the output, then the loss, never an exit code",
  "[actors][process]") {
  running_command cmd;
  cmd.process().print(output_stream::out, "half");
  cmd.process().lose();
  cmd.sys.run();
  const auto first = cmd.read(0).value();
  CHECK(first.frames.size() == 1);
  CHECK_FALSE(first.ended);
  CHECK(cmd.read(first.next_offset).reason().code == errc::sandbox_not_running);
}

TEST_CASE("a reader that has gone is passed on, so that the command is not held up",
          "[actors][process]") {
  running_command cmd;
  cmd.process().print(output_stream::out, "x");
  cmd.read(0).value();
  cmd.leave(0);
  CHECK(cmd.process().detached);
}

TEST_CASE("a reader that was passed over is waited for again once the later one has gone",
          "[actors][process]") {
  running_command cmd;
  const auto older = cmd.read(0, true, 1);
  const auto newer = cmd.read(0, true, 2);
  CHECK(cmd.process().detached);
  cmd.process().print(output_stream::out, "x");
  cmd.sys.run();
  CHECK(older.value().frames.size() == 1);
  CHECK(newer.value().frames.size() == 1);
  cmd.read(1, true, 1);
  CHECK_FALSE(cmd.process().last_attached);
  cmd.leave(2);
  cmd.process().print(output_stream::out, "y");
  cmd.sys.run();
  cmd.read(2, true, 1);
  CHECK(cmd.process().last_attached);
}

TEST_CASE("a reader that has gone leaves no question behind", "[actors][process]") {
  running_command cmd;
  for (std::uint64_t reader = 1; reader <= 300; ++reader) {
    const auto asked = cmd.read(0, true, reader);
    CHECK(asked.open());
    cmd.leave(reader);
    CHECK_FALSE(asked.open());
  }
  const auto last = cmd.read(0, true, 301);
  CHECK(last.open());
  cmd.process().print(output_stream::out, "x");
  cmd.sys.run();
  CHECK(last.value().frames.size() == 1);
}

TEST_CASE("several readers see the same output from wherever they like", "[actors][process]") {
  running_command cmd;
  for (const char* text : {"a", "b", "c"})
    cmd.process().print(output_stream::out, text);
  CHECK(cmd.read(0, true).value().frames.size() == 3);
  CHECK(cmd.read(2, false).value().frames.size() == 1);
  CHECK(cmd.read(0, false).value().frames.size() == 3);
}

TEST_CASE("a command that does not come to life is killed, and whoever waits is told",
          "[actors][process]") {
  test_system sys;
  const auto place = std::make_shared<fake_sandbox>();
  actors::process_options options;
  options.place = place;
  auto made = actors::spawn_process(sys.get(), std::move(options));
  const auto started = sys.ask<process_actor>(made, start_atom::value);
  sys.advance(29s);
  CHECK(started.open());
  sys.advance(1s);
  CHECK(started.reason().code == errc::launch_failed);
  CHECK(place->processes.front()->signals == std::vector{SIGKILL});
  caf::anon_send_exit(made, caf::exit_reason::user_shutdown);
  made = nullptr;
  sys.run();
}

#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <sstream>

using namespace insula::test;

namespace {

using clock_type = std::chrono::steady_clock;

std::string timeout(const std::string& ms) {
  return ",\"timeout_ms\":" + ms;
}

} // namespace

TEST_CASE("a command past its time ends with 124 and says so", "[exec][timeout]") {
  const node it;
  const auto begin = clock_type::now();
  const auto got = it.sh("a", "echo partial; echo and >&2; sleep 100", timeout("300"));
  CHECK(clock_type::now() - begin >= 300ms);
  CHECK(got.exit_code == 124);
  CHECK(got.out == "partial\n");
  CHECK(got.err == "and\nCommand timed out after 300ms\n");
  CHECK(got.complete);

  CHECK(it.sh("a", "sleep 100", timeout("250.5")).err == "Command timed out after 250.5ms\n");
  const auto zero = it.sh("a", "sleep 100", timeout("0")),
             negative = it.sh("a", "sleep 100", timeout("-5"));
  CHECK(zero.exit_code == 124);
  CHECK(zero.err == "Command timed out after 0ms\n");
  CHECK(negative.exit_code == 124);
  CHECK(negative.err == "Command timed out after -5ms\n");
  CHECK(it.sh("a", "echo fine", timeout("\"1\"")).exit_code == 0);
  CHECK(it.sh("a", "echo fine", timeout("null")).exit_code == 0);
  CHECK(it.sh("a", "exit 3", timeout("60000")).exit_code == 3);
  CHECK(it.sh("a", "exit 3", timeout("1e300")).exit_code == 3);
  CHECK(it.sh("a", "trap 'exit 0' TERM; while :; do sleep 0.01; done", timeout("100")).exit_code ==
        124);
}

// When each signal comes is a matter of the actor's test, which has a clock of its own.
TEST_CASE("a command that ignores SIGTERM is killed after its time", "[exec][timeout]") {
  const node it;
  const auto all = at_once(3, [&](std::size_t i) {
    switch (i) {
      case 0:
        return it.sh("a", "trap '' TERM; echo deaf; while :; do sleep 1; done", timeout("200"));
      // Left the group, and holds the output.
      case 1:
        return it.sh("a", "setsid bash -c 'echo away; echo $$ > away; sleep 1000' & wait",
                     timeout("200"));
      default:
        return it.sh("a", "(trap '' TERM; echo child; while :; do sleep 1; done) & exit 0",
                     timeout("200"));
    }
  });
  for (const auto& each : all) {
    CHECK(each.exit_code == 124);
    CHECK(each.err == "Command timed out after 200ms\n");
    CHECK_FALSE(each.out.empty());
  }
}

TEST_CASE("a timeout does not touch what an earlier command has left running", "[exec][timeout]") {
  const node it;
  const auto left = it.sh("a", "setsid sleep 1000 > /dev/null 2>&1 & echo $!");
  REQUIRE(left.exit_code == 0);
  CHECK(it.sh("a", "sleep 1000", timeout("50")).exit_code == 124);
  CHECK(it.sh("a", "kill -0 " + left.out).exit_code == 0);
}

TEST_CASE("a timeout ends all that the command has started, wherever that has gone",
          "[exec][timeout]") {
  const node it;
  // Each tells its number, holds no output, and would go on for long.
  const std::string quiet = " >/dev/null 2>&1 </dev/null";
  const std::vector<std::string> ways{
    "setsid sleep 1000" + quiet + " & echo $!; wait",
    "set -m; sleep 1000" + quiet + " & echo $!; wait",
    "setsid bash -c 'trap \"\" TERM; sleep 1000; sleep 1000'" + quiet + " & echo $!; wait",
    "node -e 'const c = require(\"child_process\").spawn(\"sleep\", [\"1000\"], {detached: true, "
    "stdio: \"ignore\"}); console.log(c.pid); setInterval(() => {}, 1000)'",
    "python3 -c 'import subprocess as s, time; p = s.Popen([\"sleep\", \"1000\"], "
    "start_new_session=True, stdout=s.DEVNULL, stderr=s.DEVNULL); print(p.pid, flush=True); "
    "time.sleep(1000)'",
    "setsid bash -c 'setsid sleep 1000 & echo $!; exec sleep 1000' & wait"};
  const auto all = at_once(ways.size(), [&](std::size_t i) {
    return it.sh("a", ways[i], timeout(i == 3 || i == 4 ? "3000" : "400"));
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(ways[i], all[i].out, all[i].err);
    CHECK(all[i].exit_code == 124);
    REQUIRE_FALSE(all[i].out.empty());
    CHECK(eventually([&] {
      return it.sh("a", "kill -0 " + all[i].out.substr(0, all[i].out.find('\n'))).exit_code != 0;
    }));
  }
  // The same in a session, whose shell goes on.
  const auto in_session = [&](const std::string& script, std::string_view more = {}) {
    return exec_stream{it.port(), "a", exec_body({"eval", script}, more), "Session-Id: s\r\n"}
      .rest();
  };
  const auto got =
    in_session("x=5; setsid sleep 1000" + quiet + " & echo $!; sleep 1000", timeout("400"));
  CHECK(got.exit_code == 124);
  CHECK(eventually([&] { return it.sh("a", "kill -0 " + got.out).exit_code != 0; }));
  CHECK(in_session("echo $x").out == "5\n");
}

TEST_CASE("what a command has left behind before its time was up stays", "[exec][timeout]") {
  const node it;
  // A daemon, whose parent has ended, and beside it one whose parent has not, which is killed last.
  const auto got = it.sh("a",
                         "(setsid sleep 1000 >/dev/null 2>&1 & echo $!); setsid bash -c 'trap \"\" "
                         "TERM; sleep 1000; sleep 1000' >/dev/null 2>&1 & echo $!; wait",
                         timeout("400"));
  CHECK(got.exit_code == 124);
  std::string daemon, child;
  std::istringstream{got.out} >> daemon >> child;
  REQUIRE_FALSE(child.empty());
  REQUIRE(eventually([&] { return it.sh("a", "kill -0 " + child).exit_code != 0; }));
  CHECK(it.sh("a", "kill -0 " + daemon).exit_code == 0);
  CHECK(it.sh("a", "kill " + daemon).exit_code == 0);
}

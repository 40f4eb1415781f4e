#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

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

#include "benchmarks/load/figures.hpp"
#include "benchmarks/load/reports.hpp"
#include "tests/load/made_run.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <sstream>

using namespace insula;
using namespace insula::test;
using Catch::Matchers::Contains;

namespace {

std::string table_of(const load::run_result& all) {
  std::ostringstream to;
  load::print_table(to, all);
  return to.str();
}

} // namespace

TEST_CASE("figures have three digits and the unit that fits", "[load]") {
  CHECK(load::in_time(0) == "0 µs");
  CHECK(load::in_time(850) == "850 µs");
  CHECK(load::in_time(999.4) == "999 µs");
  CHECK(load::in_time(999.9) == "1.00 ms");
  CHECK(load::in_time(12'345) == "12.3 ms");
  CHECK(load::in_time(999'600) == "1.00 s");
  CHECK(load::in_time(600e6) == "600 s");
  CHECK(load::in_digits(0) == "0");
  CHECK(load::in_digits(0.51234) == "0.512");
  CHECK(load::in_digits(9.999) == "10.0");
  CHECK(load::in_digits(1331.4) == "1,331");
  CHECK(load::in_digits(-75'078) == "-75,078");
  CHECK(load::in_digits(std::nan("")) == "not a number");
  CHECK(load::in_thousands(999) == "999");
  CHECK(load::in_thousands(1'000'000) == "1,000,000");
  CHECK(load::shortened("30.0 s") == "30 s");
  CHECK(load::shortened("1.50 ms") == "1.5 ms");
  CHECK(load::shortened("100 µs") == "100 µs");
  CHECK(load::shortened("0.200") == "0.2");
  CHECK(load::in_unit({"", 512.4, "ms", false}) == "512 ms");
  CHECK(load::in_unit({"", 100, "", false}) == "100");
  CHECK(load::in_unit({"", 12, "MiB", false}) == "12.0 MiB");
  CHECK(load::width_of("µs") == 2);
}

TEST_CASE("a table of a scenario", "[load]") {
  const auto table = table_of(made_run());
  CAPTURE(table);
  CHECK_THAT(table, Contains("http://127.0.0.1:8787, 2026-11-22T03:00:00Z, seed "
                             "18446744073709551607\n"));
  CHECK_THAT(table, Contains("\nexec-open: open loop, Poisson, 5/s; 2 s measured after 500 ms of "
                             "warm-up\n  command = echo \"hi\", rate = 5\n"));
  CHECK_THAT(
    table,
    Contains("        attempts  ok  failed  dropped  late  ok/s      p50      p90      p99    "
             "p99.9      max  service p50  MB/s\n"
             "  exec        10  10       0        0     0  5.00  5.00 ms  9.01 ms  10.0 ms  "
             "10.0 ms  10.0 ms      5.00 ms  18.2\n"));
  CHECK_THAT(table, Contains("  wall clock      512 ms\n  sandboxes live     100\n"));
  CHECK_THAT(table, Contains("  note: an ordinary note\n"));
  CHECK_THAT(table, Contains("  client: 10.0 % of a CPU, its busiest thread 6.25 %; timers late by "
                             "70 µs at p99, 70 µs at most; 12 of 1,024 files open\n"));
  CHECK_THAT(table, Contains("\nclient\n  cpus    2\n  kernel  6.1.0\n"));
  CHECK_THAT(table, !Contains("***") && !Contains("failures"));
}

TEST_CASE("a percentile among what is missing has failed", "[load]") {
  auto all = made_run();
  auto& exec = all.scenarios[0].operations[0];
  exec.failures = {{"status 503", 2}, {"timeout", 1}};
  exec.dropped = 2;
  exec.bytes = 0;
  const auto table = table_of(all);
  CAPTURE(table);
  CHECK_THAT(table, Contains("  exec        15  10       3        2     0  5.00  8.00 ms  failed  "
                             "failed  failed  failed      5.00 ms\n"));
  CHECK_THAT(table, Contains("  failures of exec: status 503 (2), timeout (1), dropped (2)\n"));
  CHECK_THAT(table, !Contains("MB/s"));
}

TEST_CASE("what says nothing is said loudly", "[load]") {
  auto all = made_run();
  all.clients = 3;
  all.scenarios[0].void_reasons = {"its timers fired 12 ms late"};
  all.scenarios[0].partial = "interrupted";
  all.scenarios.push_back({});
  all.scenarios.back().name = "pty-echo";
  all.scenarios.back().skipped = "the server has no terminals";
  const auto table = table_of(all);
  CHECK_THAT(table, Contains(", 3 clients\n"));
  CHECK_THAT(table,
             Contains("  *** VOID, the client was the bottleneck: its timers fired 12 ms late ***\n"
                      "  *** PARTIAL: interrupted ***\n"));
  CHECK_THAT(table, Contains("\npty-echo\n  *** SKIPPED: the server has no terminals ***\n"));
}

TEST_CASE("an operation that was never tried has no figures", "[load]") {
  auto all = made_run();
  all.scenarios[0].operations = {{}};
  all.scenarios[0].operations[0].name = "exec";
  all.scenarios[0].seconds = 0;
  CHECK_THAT(table_of(all),
             Contains("  exec         0   0       0        0     0     -    -    -    "
                      "-      -    -            -\n"));
}

TEST_CASE("the machine says what it is", "[load]") {
  const auto machine = load::describe_machine();
  for (const auto* name :
       {"kernel", "cpu", "cpus", "memory", "cgroups", "system", "version", "commit"}) {
    CAPTURE(name);
    REQUIRE(machine.count(name) == 1);
    CHECK_FALSE(machine.at(name).empty());
  }
}

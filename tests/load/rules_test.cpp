#include "benchmarks/load/command.hpp"
#include "benchmarks/load/recorder.hpp"
#include "benchmarks/load/rules.hpp"
#include "tests/support/catch.hpp"

#include <limits>

using namespace insula::load;
using namespace std::chrono_literals;

namespace {

/// A hundred answers of 4 ms, by a client that had nothing to do.
scenario_result calm() {
  scenario_result what;
  what.name = "exec-open";
  auto& exec = what.operations.emplace_back();
  exec.name = "exec";
  exec.latency.record(4000, 100);
  what.client.seconds = 10;
  what.client.busiest_thread_share = 0.2;
  what.client.open_files_max = 100;
  what.client.open_files_limit = 1024;
  return what;
}

/// Timers that were so late while exec was measured.
client_conditions timers(bool same_machine, std::uint64_t us, std::uint64_t rare_us = 0) {
  client_conditions where{true, false, same_machine, {}};
  where.lateness["exec"].record(us, 5000);
  if (rare_us > 0)
    where.lateness["exec"].record(rare_us, 100);
  return where;
}

const auto apart = timers(false, 60), together = timers(true, 60);

load_step good_step() {
  return {200, 1000, 995, 20, 4, 5};
}

} // namespace

TEST_CASE("a client that had little to do says nothing against its figures", "[load]") {
  CHECK(void_reasons(calm(), apart).empty());
  CHECK(void_reasons(scenario_result{}, apart).empty());
}

TEST_CASE("figures are void when a thread of the client was busy all the time", "[load]") {
  auto what = calm();
  what.client.busiest_thread_share = 0.901;
  CHECK(void_reasons(what, apart).size() == 1);
}

TEST_CASE("figures are void when the client's timers were late beside them", "[load]") {
  auto what = calm();
  // More than a quarter of 4 ms, at p50 and p99; on one machine half of p50 and all of p99 pass.
  CHECK(void_reasons(what, timers(false, 1100)).size() == 2);
  CHECK(void_reasons(what, timers(true, 1100)).empty());
  CHECK(void_reasons(what, timers(true, 5000)).size() == 2);
  CHECK(void_reasons(what, timers(false, 60, 1100)).size() == 1); // At p99 only.

  what.operations[0].latency = {};
  what.operations[0].latency.record(40'000, 100); // Slow things bear it.
  CHECK(void_reasons(what, timers(false, 1100)).empty());
  what.operations[0].latency = {};
  what.operations[0].latency.record(4000, 19); // Too few to be compared with.
  CHECK(void_reasons(what, timers(false, 1100)).empty());
  what.operations[0].latency.record(4000, 1); // Enough for a p50.
  CHECK(void_reasons(what, timers(false, 1100)).size() == 1);
}

TEST_CASE("what timers did while something else was measured says nothing", "[load]") {
  auto what = calm();
  what.operations[0].name = "exec, 1 live";
  CHECK(void_reasons(what, timers(false, 9000)).empty());
}

TEST_CASE("short things are compared with a floor of what timers can do", "[load]") {
  auto what = calm();
  what.operations[0].latency = {};
  what.operations[0].latency.record(300, 100);
  CHECK(void_reasons(what, timers(false, 240)).empty());
  CHECK(void_reasons(what, timers(false, 260)).size() == 1);
}

TEST_CASE("figures are void when open files ran out", "[load]") {
  auto what = calm();
  what.client.open_files_max = 950;
  CHECK(void_reasons(what, apart).size() == 1);
  what.client.open_files_max = 100;
  CHECK(void_reasons(what, {true, true, false, {}}).size() == 1);
}

TEST_CASE("figures are void when an open loop began late", "[load]") {
  auto what = calm();
  what.operations[0].late = 11;
  CHECK(void_reasons(what, apart).size() == 1);
  CHECK(void_reasons(what, {false, false, false, {}}).empty());
  CHECK(void_reasons(what, together).empty());
  what.operations[0].late = 26;
  CHECK(void_reasons(what, together).size() == 1);
}

TEST_CASE("a step converges when what was begun is completed, soon, and nothing piles up",
          "[load]") {
  const step_bounds bounds{0.98, 500};
  CHECK(why_not_converged(good_step(), bounds).empty());
  CHECK(why_not_converged({}, bounds).empty());

  auto step = good_step();
  step.completed = 979;
  CHECK(why_not_converged(step, bounds).find("completed") != std::string::npos);
  step = good_step();
  step.p99_ms = 501;
  CHECK(why_not_converged(step, bounds).find("p99") != std::string::npos);
  step.p99_ms = std::numeric_limits<double>::infinity();
  CHECK(why_not_converged(step, bounds).find("failure") != std::string::npos);
  step = good_step();
  step.open_end = 11; // 50 ms of arrivals are 10.
  CHECK(why_not_converged(step, bounds).find("backlog") != std::string::npos);
  step.open_end = 10;
  CHECK(why_not_converged(step, bounds).empty());
  step.open_middle = 8; // Many, but no more than before.
  step.open_end = 15;
  CHECK(why_not_converged(step, bounds).empty());
}

TEST_CASE("a recorder counts from the intended start and leaves no failure out", "[load]") {
  const auto from = clock::now();
  counters all;
  recorder exec{"exec", from, all, true};
  const auto attempt = [&](clock::duration intended, clock::duration late, clock::duration took,
                           const std::string& failure) {
    exec.started(from + intended, from + intended + late);
    ending how;
    how.failure = failure;
    how.at = from + intended + late + took;
    how.bytes = 10;
    exec.ended(from + intended, from + intended + late, how);
  };
  attempt(-500ms, 0ms, 3ms, "");
  attempt(-400ms, 0ms, 3ms, "cut"); // Warming up.
  attempt(10ms, 0ms, 5ms, "");
  attempt(20ms, 3ms, 5ms, ""); // Late, and its latency shows it.
  attempt(1500ms, 0ms, 2ms, "status 503");
  attempt(1600ms, 0ms, 2ms, "status 503");
  attempt(1700ms, 0ms, 2ms, failure::timeout);
  attempt(1800ms, 0ms, 2ms, failure::let_go);
  exec.dropped(from + 2100ms, from + 2101ms);
  exec.dropped(from - 1ms, from);
  exec.dropped(from + 2200ms, from + 2202ms); // By a client that was too slow.

  const auto& found = exec.result();
  CHECK(found.latency.count() == 2);
  CHECK(found.latency.min_us() == 5000);
  CHECK(found.latency.max_us() == 8000);
  CHECK(found.service.max_us() == 5000);
  CHECK(found.late == 2);
  CHECK(found.dropped == 2);
  CHECK(found.bytes == 20);
  CHECK(found.failures == std::map<std::string, std::uint64_t>{{"status 503", 2}, {"timeout", 1}});
  CHECK(found.attempts() == 7);
  CHECK(found.samples_ms == std::vector<double>{5, 8, -2, -2, -2});
  CHECK(exec.warm_up_failures() == std::map<std::string, std::uint64_t>{{"cut", 1}});
  CHECK(exec.let_go() == 1);
  REQUIRE(found.seconds.size() == 3);
  CHECK(found.seconds[0] == second_point{2, 2, 0, 0, 13'000, 8000});
  CHECK(found.seconds[1] == second_point{4, 0, 3, 0, 0, 0});
  CHECK(found.seconds[2] == second_point{0, 0, 0, 2, 0, 0});
  CHECK(all.started == 8);
  CHECK(all.ok == 3);
  CHECK(all.failed == 4);
}

TEST_CASE("nothing is measured before the measuring has begun", "[load]") {
  const auto never = clock::time_point::max();
  counters all;
  recorder exec{"exec", never, all, false};
  const auto now = clock::now();
  exec.started(now, now);
  exec.ended(now, now, {});
  CHECK(exec.result().attempts() == 0);
}

TEST_CASE("the exit status tells the most basic trouble", "[load]") {
  run_result all;
  all.scenarios.push_back(calm());
  CHECK(status_of(all, {}) == 0);
  CHECK(status_of(all, {0, false, true, false}) == 5);
  CHECK(status_of(all, {0, true, true, false}) == 2);

  all.scenarios[0].operations[0].failures["cut"] = 1;
  CHECK(status_of(all, {0, true, true, false}) == 3);
  CHECK(status_of(all, {0.02, false, false, false}) == 0);
  all.scenarios[0].operations[0].dropped = 2;
  CHECK(status_of(all, {0.02, false, false, false}) == 3);
  all.scenarios[0].name = "cliff"; // Failing is what it looks for.
  CHECK(status_of(all, {}) == 0);
  all.scenarios[0].partial = "the server has gone";
  CHECK(status_of(all, {}) == 3);

  all.scenarios[0].void_reasons = {"busy"};
  CHECK(status_of(all, {0, true, true, false}) == 3);
  all.scenarios[0].partial.clear();
  CHECK(status_of(all, {0, true, true, false}) == 4);
  CHECK(status_of(all, {0, true, true, true}) == 130);
}

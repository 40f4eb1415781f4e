#pragma once

#include "benchmarks/load/result.hpp"

#include <initializer_list>

namespace insula::test {

/// An operation whose successes took so many milliseconds, as was intended.
inline load::operation_result made_operation(std::string name, std::initializer_list<double> ms) {
  load::operation_result made;
  made.name = std::move(name);
  for (const double each : ms) {
    const auto us = static_cast<std::uint64_t>(each * 1000);
    made.latency.record(us);
    made.service.record(us);
    made.samples_ms.push_back(each);
  }
  return made;
}

/// Ten successes of 1 to 10 ms in two seconds, and what else a scenario can have.
inline load::scenario_result made_scenario(std::string name) {
  load::scenario_result made;
  made.name = std::move(name);
  made.method = "open loop, Poisson, 5/s";
  made.parameters = {{"rate", "5"}, {"command", "echo \"hi\""}};
  made.warm_up_seconds = 0.5;
  made.seconds = 2;
  made.operations = {made_operation("exec", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})};
  made.operations[0].seconds = {{6, 5, 0, 0, 15'000, 5'000}, {4, 5, 0, 0, 40'000, 10'000}};
  made.operations[0].bytes = 1'000'000;
  made.values = {{"wall clock", 512.25, "ms", false}, {"sandboxes live", 100, "", true}};
  made.client = {2.5, 0.25, 0.0625, {}, 12, 1024};
  made.client.timer_lateness.record(70, 1000);
  made.notes = {"an ordinary note"};
  return made;
}

inline load::run_result made_run() {
  load::run_result made;
  made.target = "http://127.0.0.1:8787";
  made.started_at = "2026-11-22T03:00:00Z";
  made.command = "insula bench --url http://127.0.0.1:8787";
  made.seed = 0xffff'ffff'ffff'fff7;
  made.client = {{"kernel", "6.1.0"}, {"cpus", "2"}};
  made.server = {{"version", "0.1.0"}};
  made.scenarios = {made_scenario("exec-open")};
  return made;
}

} // namespace insula::test

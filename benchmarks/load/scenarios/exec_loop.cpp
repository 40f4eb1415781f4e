#include "benchmarks/load/scenarios/scenarios.hpp"

namespace insula::load {

namespace {

task<> run(scenario_context& in) {
  const auto sandboxes = co_await in.live_sandboxes(1); // Its first command is the warm-up.
  auto& turns = in.operation("exec in turn", true);
  auto& parallel = in.operation("exec in parallel", true);
  in.found.method =
    "one after the other, then " + std::to_string(in.count("parallel")) + " at once";
  const auto one = exec_on_any(in, sandboxes, turns);
  co_await open_connections(in, in.count("parallel"));
  for (std::uint64_t round = 0; round < in.count("rounds") && !in.ending(); ++round) {
    co_await in_turn(in, in.count("turns"), one);
    co_await at_once(in, in.count("parallel"), parallel,
                     [&one](std::uint64_t) { return one.run(); });
  }
}

} // namespace

scenario exec_loop() {
  return {"exec-loop",
          "On one sandbox, after a first command that does not count: `echo hi` 25 times in turn, "
          "then five at once; each until its exit event, those at once from their common start.",
          {{"rounds", parameter_kind::count, "3", "1", "how often that is done"},
           {"turns", parameter_kind::count, "25", "10", "commands in turn"},
           {"parallel", parameter_kind::count, "5", "5", "commands at once"}},
          false,
          false,
          run};
}

} // namespace insula::load

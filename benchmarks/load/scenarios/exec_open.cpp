#include "benchmarks/load/scenarios/scenarios.hpp"

namespace insula::load {

namespace {

task<> run(scenario_context& in) {
  const auto sandboxes = co_await in.live_sandboxes(in.part("sandboxes"));
  if (sandboxes.empty())
    throw scenario_skipped("there are fewer sandboxes than clients");
  const std::vector<activity> what{exec_on_any(in, sandboxes, in.operation("exec"))};
  co_await drive(in, what);
}

} // namespace

scenario exec_open() {
  return {"exec-open",
          "`echo hi` on living sandboxes, each time on any of them: until the exit event.",
          {rate_parameter("50", "20"),
           duration_parameter("20s", "2s"),
           warm_up_parameter(),
           {"sandboxes", parameter_kind::count, "10", "3", "how many there are"}},
          true,
          false,
          run};
}

} // namespace insula::load

#include "benchmarks/load/scenarios/scenarios.hpp"

namespace insula::load {

command echo_hi(const scenario_context& in) {
  return {{"echo", "hi"}, "hi\n", in.with.api.patience()};
}

activity exec_on_any(scenario_context& in, const std::vector<std::string>& sandboxes,
                     recorder& into, double weight) {
  const auto run = [&in, &sandboxes]() -> task<ending> {
    const auto& id = sandboxes[in.random() % sandboxes.size()];
    ending end = co_await in.with.api.exec(id, echo_hi(in));
    co_return end;
  };
  return {&into, run, weight};
}

parameter rate_parameter(const char* value, const char* quick) {
  return {"rate", parameter_kind::number, value, quick, "attempts per second, of the whole run"};
}

parameter duration_parameter(const char* value, const char* quick) {
  return {"duration", parameter_kind::seconds, value, quick, "how long it is measured"};
}

parameter warm_up_parameter() {
  return {"warm-up", parameter_kind::seconds, "2s", "500ms",
          "before that, the same load, which does not count"};
}

} // namespace insula::load

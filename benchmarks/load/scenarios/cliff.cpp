#include "benchmarks/load/rules.hpp"
#include "benchmarks/load/scenarios/scenarios.hpp"

#include <cmath>
#include <cstdio>
#include <limits>

namespace insula::load {

namespace {

std::string rate_text(double rate) {
  char made[64];
  std::snprintf(made, sizeof made, "%.0f/s", rate);
  return made;
}

task<> run(scenario_context& in) {
  in.found.method = std::string{"open loop, "} +
                    (in.with.shape.kind == arrivals::poisson ? "Poisson" : "fixed") +
                    ", rising step by step";
  const auto sandboxes = co_await in.live_sandboxes(in.count("sandboxes"));
  if (sandboxes.empty())
    throw scenario_failed("it needs a sandbox");
  const step_bounds bounds{in.number("completion") / 100, in.number("p99-ms")};
  const auto factor = 1 + in.number("rise") / 100;
  double good = 0;
  for (double rate = in.number("first"); rate <= in.number("last") && !in.ending();
       rate = std::max(rate + 1, std::round(rate * factor))) {
    auto& into = in.operation("exec at " + rate_text(rate));
    const std::vector<activity> what{exec_on_any(in, sandboxes, into)};
    loop_plan plan;
    plan.rate = rate;
    plan.length = in.seconds("step");
    const auto seen = co_await open_loop(in, plan, what);
    if (in.ending())
      break;
    const auto& now = into.result();
    const auto p99 = now.latency.percentile_us(99, now.missing());
    load_step step;
    step.rate = rate;
    step.intended = seen.intended;
    step.completed = seen.completed;
    step.p99_ms = p99 ? static_cast<double>(*p99) / 1000 : std::numeric_limits<double>::infinity();
    step.open_middle = seen.open_middle;
    step.open_end = seen.open_end;
    const auto why = why_not_converged(step, bounds);
    if (!why.empty()) {
      in.value("first bad rate", rate, "1/s", true);
      in.found.notes.push_back("at " + rate_text(rate) + " " + why);
      break;
    }
    good = rate;
  }
  in.value("last good rate", good, "1/s", true);
}

} // namespace

scenario cliff() {
  return {
    "cliff",
    "`echo hi` on living sandboxes at a rate that rises until the server does not keep up: less "
    "than `completion` is completed while a step lasts, p99 is over its bound, or the backlog "
    "grows. The last rate that went well is what it finds; the failures of the first bad step "
    "are no fault.",
    {{"first", parameter_kind::number, "50", "20", "the first rate, per second"},
     {"last", parameter_kind::number, "20000", "60", "it ends there in any case"},
     {"rise", parameter_kind::number, "40", "100", "each step is that many percent more"},
     {"step", parameter_kind::seconds, "5s", "1s", "how long a step lasts"},
     {"completion", parameter_kind::number, "98", "98", "percent of the intended"},
     {"p99-ms", parameter_kind::number, "500", "500", "bound of p99"},
     {"sandboxes", parameter_kind::count, "10", "3", "how many there are"}},
    false,
    true,
    run};
}

} // namespace insula::load

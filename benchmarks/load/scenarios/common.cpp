#include "benchmarks/load/process_stats.hpp"
#include "benchmarks/load/scenarios/scenarios.hpp"

#include <unistd.h>

namespace insula::load {

namespace {

constexpr double kib_per_mib = 1024, mib = 1 << 20;
/// Freed pages and groups of processes come back within that.
constexpr std::chrono::milliseconds calm_after{500};

} // namespace

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

task<> warm_up(scenario_context& in, std::uint64_t count, std::function<task<ending>()> what) {
  std::map<std::string, std::uint64_t> failures;
  for (std::uint64_t i = 0; i < count && !in.ending(); ++i) {
    const ending how = co_await what();
    if (!how.ok())
      ++failures[how.failure];
  }
  note_warm_up_failures(in, failures);
}

void note_warm_up_failures(scenario_context& in,
                           const std::map<std::string, std::uint64_t>& failures) {
  for (const auto& [kind, times] : failures)
    in.found.notes.push_back(std::to_string(times) + " failed while warming up: " + kind);
}

bool is_missing(const std::string& failure) {
  return failure == "status 404" || failure == "status 405" || failure == "status 501";
}

task<memory_seen> look_at_memory(scenario_context& in) {
  memory_seen seen;
  const auto server = co_await in.with.api.metric("process_resident_memory_bytes");
  if (server)
    seen.server = *server / mib;
  if (in.with.same_machine) {
    auto machine = memory_of_machine();
    const auto used = static_cast<double>(machine["MemTotal"]) -
                      static_cast<double>(machine["MemAvailable"]) -
                      static_cast<double>(status_kib(::getpid(), "RssAnon"));
    seen.machine = used / kib_per_mib;
  }
  co_return seen;
}

task<memory_seen> look_at_calm_memory(scenario_context& in) {
  co_await sleep_until(in.with.io, clock::now() + calm_after);
  const auto seen = co_await look_at_memory(in);
  co_return seen;
}

task<> tell_memory_per(scenario_context& in, std::string thing, std::uint64_t count,
                       memory_seen before) {
  const auto now = co_await look_at_calm_memory(in);
  const auto each = static_cast<double>(count);
  if (before.machine && now.machine)
    in.value("machine memory per " + thing, (*now.machine - *before.machine) * kib_per_mib / each,
             "KiB");
  if (before.server && now.server)
    in.value("server memory per " + thing, (*now.server - *before.server) * kib_per_mib / each,
             "KiB");
  else
    in.found.notes.push_back("the server does not tell its memory (GET /metrics)");
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

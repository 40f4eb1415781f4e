#include "benchmarks/load/process_stats.hpp"
#include "benchmarks/load/scenarios/scenarios.hpp"

#include <algorithm>

namespace insula::load {

namespace {

constexpr double mib = 1 << 20;

/// The server's own memory, and what the machine has less, if that says anything about it.
class memory_notes {
public:
  explicit memory_notes(scenario_context& in)
      : in_(in)
      , available_(available()) {}

  task<> note(std::string step) {
    const auto server = co_await in_.with.api.metric("process_resident_memory_bytes");
    if (server)
      in_.value("server memory, " + step, *server / mib, "MiB");
    if (in_.with.same_machine)
      in_.value("machine memory used, " + step, available_ - available(), "MiB");
  }

private:
  static double available() {
    return static_cast<double>(memory_of_machine()["MemAvailable"]) / 1024;
  }

  scenario_context& in_;
  double available_;
};

task<> run(scenario_context& in) {
  in.found.method = "one after the other; then closed loop";
  memory_notes memory{in};
  std::vector<std::string> live;
  for (const auto level : in.counts("live")) {
    if (in.ending())
      break;
    if (level > live.size()) {
      try {
        const auto more = co_await in.live_sandboxes(level - live.size());
        live.insert(live.end(), more.begin(), more.end());
      } catch (const scenario_failed& why) {
        // With more clients it can still go on. A server that says that it is full is no failure.
        const auto text = std::to_string(level) + " live: " + why.what();
        if (text.ends_with("status 503"))
          in.found.notes.push_back(text);
        else
          in.found.partial = text;
        break;
      }
    }
    const auto step = std::to_string(level) + " live";
    const auto one = exec_on_any(in, live, in.operation("exec, " + step));
    co_await in_turn(in, in.count("samples"), one);
    co_await memory.note(step);
  }

  live.resize(std::min<std::size_t>(live.size(), in.count("sandboxes")));
  std::set<std::string> kept{live.begin(), live.end()};
  const auto left = co_await in.with.api.remove_all(std::move(kept));
  if (left > 0)
    throw scenario_failed(std::to_string(left) + " sandboxes could not be deleted");
  if (live.size() < in.count("sandboxes") && !in.ending()) {
    const auto more = co_await in.live_sandboxes(in.count("sandboxes") - live.size());
    live.insert(live.end(), more.begin(), more.end());
  }
  for (const auto clients : in.counts("clients")) {
    if (in.ending())
      break;
    const auto step = std::to_string(clients) + (clients == 1 ? " client" : " clients");
    const std::vector<activity> what{exec_on_any(in, live, in.operation("exec, " + step))};
    loop_plan plan;
    plan.length = in.seconds("length");
    const auto began = clock::now();
    co_await closed_loop(in, clients, plan, what);
    const auto took = std::chrono::duration<double>(clock::now() - began).count();
    in.value("throughput, " + step,
             static_cast<double>(what.front().into->result().latency.count()) / took, "1/s", true);
    co_await memory.note(step);
  }
}

} // namespace

scenario growth() {
  return {"growth",
          "How `echo hi` and memory change with what there is: one after the other with more and "
          "more living sandboxes, then with more and more clients that each wait for their answer "
          "(closed loop).",
          {{"live", parameter_kind::counts, "1,10,100,1000,2000", "1,10", "living sandboxes"},
           {"samples", parameter_kind::count, "200", "10", "commands at each"},
           {"clients", parameter_kind::counts, "1,8,64,512", "1,4", "clients at once"},
           {"length", parameter_kind::seconds, "5s", "1s", "how long at each"},
           {"sandboxes", parameter_kind::count, "16", "3", "that the clients use"}},
          false,
          false,
          run};
}

} // namespace insula::load

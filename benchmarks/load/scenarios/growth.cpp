#include "benchmarks/load/scenarios/scenarios.hpp"

#include <algorithm>

namespace insula::load {

namespace {

/// The server's own memory, and what the machine uses more than at the beginning, if that says
/// anything about it.
task<> note_memory(scenario_context& in, std::string step, memory_seen begin) {
  const auto now = co_await look_at_memory(in);
  if (now.server)
    in.value("server memory, " + step, *now.server, "MiB");
  if (now.machine && begin.machine)
    in.value("machine memory used, " + step, *now.machine - *begin.machine, "MiB");
}

task<> run(scenario_context& in) {
  in.found.method = "one after the other; then closed loop";
  const auto begin = co_await look_at_memory(in);
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
    co_await note_memory(in, step, begin);
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
    co_await note_memory(in, step, begin);
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

#include "benchmarks/load/scenarios/scenarios.hpp"

#include <algorithm>

namespace insula::load {

namespace {

double ms(clock::duration length) {
  return std::chrono::duration<double, std::milli>(length).count();
}

task<> measure(scenario_context& in, bool warm) {
  const auto crowd = in.part("sandboxes");
  if (crowd == 0)
    throw scenario_skipped("there are fewer sandboxes than clients");
  in.found.method = std::to_string(in.count("sandboxes")) + " at once";
  auto& ready = in.operation("create to exit", true);
  double wall = 0, first = 0;
  std::uint64_t rounds = 0;
  for (; rounds < in.count("rounds") && !in.ending(); ++rounds) {
    if (warm)
      co_await wait_for_pool(in, in.count("sandboxes"));
    co_await open_connections(in, crowd);
    std::vector<clock::time_point> exits;
    const auto one = [&in, &exits](std::uint64_t) -> task<ending> {
      const auto made = co_await in.with.api.create();
      if (!made.ok())
        co_return made;
      command what{{"true"}, {}, in.with.api.patience()};
      const auto ran = co_await in.with.api.exec(made.id, std::move(what));
      if (ran.ok())
        exits.push_back(ran.at);
      co_return ran;
    };
    const auto begin = co_await at_once(in, crowd, ready, one);
    if (exits.empty())
      break;
    const auto [early, late] = std::minmax_element(exits.begin(), exits.end());
    first += ms(*early - begin);
    wall += ms(*late - begin);
    const auto left = co_await in.with.api.remove_all();
    if (left > 0)
      throw scenario_failed("sandboxes of an earlier round could not be deleted");
  }
  if (rounds > 0) {
    in.value("wall clock", wall / static_cast<double>(rounds), "ms");
    in.value("first ready", first / static_cast<double>(rounds), "ms");
  }
}

task<> run_cold(scenario_context& in) {
  const auto pool = co_await in.with.api.pool();
  if (pool.missing.empty() && pool.target > 0)
    in.found.notes.push_back("the server keeps " + std::to_string(pool.target) +
                             " sandboxes warm, so these are not all cold");
  co_await measure(in, false);
}

task<> run_warm(scenario_context& in) {
  const auto target = co_await find_pool(in);
  if (target < in.count("sandboxes"))
    in.found.notes.push_back("the server keeps " + std::to_string(target) +
                             " sandboxes warm, so the others are cold");
  co_await measure(in, true);
}

std::vector<parameter> parameters() {
  return {{"sandboxes", parameter_kind::count, "100", "10", "how many at once"},
          {"rounds", parameter_kind::count, "3", "1", "how often"}};
}

} // namespace

scenario burst_warm() {
  return {"burst-warm",
          "The same with the server's pool of warm sandboxes, which is waited for before each "
          "round. Skipped where there is no pool.",
          parameters(),
          true,
          false,
          run_warm};
}

scenario burst() {
  return {
    "burst",
    "That many clients at once, connected before, each create a sandbox and run `true` in it: "
    "each from the common start to its exit event. `wall clock` is the last exit of all, "
    "`first ready` the first; both are the mean of the rounds.",
    parameters(),
    true,
    false,
    run_cold};
}

} // namespace insula::load

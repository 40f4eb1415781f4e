#include "benchmarks/load/scenarios/scenarios.hpp"

#include <limits>

namespace insula::load {

namespace {

using namespace std::chrono_literals;

constexpr auto pool_patience = 30s;

/// From the create to the command's exit. The delete comes after the clock has stopped.
task<ending> create_to_exit(scenario_context& in) {
  const auto made = co_await in.with.api.create();
  if (!made.ok())
    co_return made;
  command what{in.words("command"), {}, in.with.api.patience()};
  const auto ran = co_await in.with.api.exec(made.id, std::move(what));
  co_await in.with.api.remove(made.id);
  co_return ran;
}

/// From the create to the first output of a command that needs nothing. What is warm shows here:
/// node alone takes longer to start than all the rest.
task<ending> create_to_output(scenario_context& in) {
  const auto made = co_await in.with.api.create();
  if (!made.ok())
    co_return made;
  const auto ran = co_await in.with.api.exec(made.id, echo_hi(in));
  co_await in.with.api.remove(made.id);
  ending end = ran;
  if (ran.ok())
    end.at = ran.first_output;
  co_return end;
}

} // namespace

task<> wait_for_pool(scenario_context& in, std::uint64_t wanted) {
  const auto until = clock::now() + pool_patience;
  for (;;) {
    const auto now = co_await in.with.api.pool();
    if (!now.missing.empty())
      throw scenario_failed(now.missing);
    if (now.warm >= std::min(wanted, now.target) || in.ending())
      co_return;
    if (clock::now() > until)
      throw scenario_failed("the pool has " + std::to_string(now.warm) + " of " +
                            std::to_string(std::min(wanted, now.target)) +
                            " warm sandboxes after 30 s");
    co_await sleep_until(in.with.io, clock::now() + 20ms);
  }
}

task<std::uint64_t> find_pool(scenario_context& in) {
  auto pool = co_await in.with.api.pool();
  if (!pool.missing.empty())
    throw scenario_skipped("the server has no warm pool (" + pool.missing + ")");
  const auto primed = co_await in.with.api.prime_pool();
  if (!primed.ok())
    throw scenario_skipped(
      "the server's pool cannot be primed (POST /v1/pool/prime: " + primed.failure + ")");
  pool = co_await in.with.api.pool();
  if (pool.target == 0)
    throw scenario_skipped("the server's pool is switched off (WARM_POOL_TARGET is 0)");
  co_return pool.target;
}

namespace {

task<> measure(scenario_context& in, bool warm) {
  in.found.method = "one after the other, then at once, then staggered";
  const auto prepare = [&in, warm](std::uint64_t wanted) -> task<> {
    if (warm)
      co_await wait_for_pool(in, wanted);
  };

  const activity one{&in.operation("tti", true), [&in] { return create_to_exit(in); }};
  for (std::uint64_t i = 0; i < in.count("iterations") && !in.ending(); ++i) {
    co_await prepare(1);
    co_await in_turn(in, 1, one);
  }

  if (const auto crowd = in.count("concurrent"); crowd > 0 && !in.ending()) {
    co_await prepare(crowd);
    co_await open_connections(in, crowd);
    co_await at_once(in, crowd, in.operation("tti concurrent", true),
                     [&in](std::uint64_t) { return create_to_exit(in); });
  }

  if (const auto row = in.count("staggered"); row > 0 && !in.ending()) {
    co_await prepare(row);
    auto& each = in.operation("tti staggered", true);
    const auto late = [](scenario_context& inside, recorder& into,
                         clock::time_point when) -> task<> {
      co_await sleep_until(inside.with.io, when);
      const auto began = clock::now();
      into.started(when, began);
      const ending how = co_await create_to_exit(inside);
      into.ended(when, began, how);
    };
    const self_watch::span measuring{in.with.watch, each.result().name};
    const auto start = clock::now();
    task_group group{in.with.io};
    for (std::uint64_t i = 0; i < row; ++i)
      group.start(late(in, each, start + i * in.seconds("stagger")));
    co_await group.wait();
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
  co_await find_pool(in);
  co_await measure(in, true);
  // All warm before each, so that no refill is under way beside it.
  const activity one{&in.operation("create to output"), [&in] { return create_to_output(in); }};
  for (std::uint64_t i = 0; i < in.count("outputs") && !in.ending(); ++i) {
    co_await wait_for_pool(in, std::numeric_limits<std::uint64_t>::max());
    co_await in_turn(in, 1, one);
  }
}

std::vector<parameter> parameters() {
  return {{"iterations", parameter_kind::count, "30", "5", "one after the other"},
          {"concurrent", parameter_kind::count_or_none, "20", "5", "then so many at once; 0: none"},
          {"staggered", parameter_kind::count_or_none, "20", "5",
           "then so many at even distances; 0: none"},
          {"stagger", parameter_kind::seconds, "200ms", "100ms", "the distance"},
          {"command", parameter_kind::words, "node -v", "node -v", "what is run in each"}};
}

} // namespace

scenario tti_cold() {
  return {"tti-cold",
          "Time to interactive as ComputeSDK defines it: from the create to the exit of `node -v` "
          "in the new sandbox. Deleting it is not in it.",
          parameters(),
          false,
          false,
          run_cold};
}

scenario tti_warm() {
  auto more = parameters();
  more.push_back({"outputs", parameter_kind::count_or_none, "300", "20",
                  "then so many from the create to the first output of `echo`; 0: none"});
  return {"tti-warm",
          "The same with the server's pool of warm sandboxes, which is waited for before each. "
          "Skipped where there is no pool.",
          std::move(more),
          false,
          false,
          run_warm};
}

} // namespace insula::load

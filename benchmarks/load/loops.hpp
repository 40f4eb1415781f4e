#pragma once

#include "benchmarks/load/scenario.hpp"

#include <functional>
#include <vector>

namespace insula::load {

/// One kind of thing that is done over and over, and how often beside the others.
struct activity {
  recorder* into;
  std::function<task<ending>()> run;
  double weight = 1;
};

/// How long a loop goes on. The warm-up comes first and is not in the length.
struct loop_plan {
  double rate = 0; ///< Of the whole run, per second; not used by the closed loop.
  clock::duration warm_up{};
  clock::duration length{};
};

/// What an open loop found besides what the recorders keep, of this thread.
struct loop_outcome {
  std::uint64_t intended = 0;
  std::uint64_t completed = 0;   ///< Well, before the end.
  std::uint64_t open_middle = 0; ///< Under way.
  std::uint64_t open_end = 0;
};

/// Begins things when the schedule says so, whatever has become of those before. Returns once all
/// have ended: after the plan's end nothing is begun, but what was is waited for. `what` must not
/// be empty.
task<loop_outcome> open_loop(scenario_context& in, loop_plan plan,
                             const std::vector<activity>& what);

/// `clients` of the whole run, each of which begins the next thing when the last has ended.
task<> closed_loop(scenario_context& in, std::uint64_t clients, loop_plan plan,
                   const std::vector<activity>& what);

/// The loop that was asked for on the command line, with the scenario's own rate, warm-up and
/// duration; says in the result which.
task<> drive(scenario_context& in, const std::vector<activity>& what);

/// `count` times, one after the other.
task<> in_turn(scenario_context& in, std::uint64_t count, const activity& what);

/// All at the same moment, from which each one's time counts; `run` is told its number. Returns the
/// moment.
task<clock::time_point> at_once(scenario_context& in, std::uint64_t count, recorder& into,
                                std::function<task<ending>(std::uint64_t)> run);

/// Opens that many connections, so that what is measured next does not.
task<> open_connections(scenario_context& in, std::uint64_t count);

} // namespace insula::load

#pragma once

#include "benchmarks/load/result.hpp"

#include <map>
#include <string>
#include <vector>

/// When figures count: pure functions of what was measured.
namespace insula::load {

/// What the rule below asks beside the result itself.
struct client_conditions {
  bool open_loop = false;
  bool ran_out_of_files = false;
  bool same_machine = false; ///< Client and server share their CPUs.
  /// How late its timers were while an operation was measured, by the operation's name.
  std::map<std::string, histogram> lateness;
};

/// Why the client and not the server may have made the figures, in words; none: they count.
///
/// - Its busiest thread used more than 90 % of a CPU in any five seconds.
/// - Its timers were late while an operation was measured: at the median more than max(0.25 ms, a
///   quarter of the operation's p50), or at p99 more than max(1 ms, a quarter of its p99). Like is
///   compared with like: of what an answer waits for the client, the timer that ticks beside it is
///   a sample. On one machine with the server half of the p50 and all of the p99 is allowed: the
///   server's own threads are what the client waits for then, as any caller on that machine would,
///   and a note says so.
/// - More than 90 % of the open files it may have were open, or there was none left.
/// - Open loop: more than a tenth was begun later than a millisecond after its time (on one
///   machine with the server: a quarter), so that it was not the schedule that was told.
///
/// In the second, there have to be 20 answers and 20 ticks for a p50, 100 of each for a p99.
std::vector<std::string> void_reasons(const scenario_result& what, const client_conditions& where);

/// One step of a rising load.
struct load_step {
  double rate = 0;               ///< Intended, per second.
  std::uint64_t intended = 0;    ///< Attempts in the step.
  std::uint64_t completed = 0;   ///< Well, while the step lasted.
  double p99_ms = 0;             ///< Of all attempts; endless if failures reach so far.
  std::uint64_t open_middle = 0; ///< Under way in the middle of the step, and at its end.
  std::uint64_t open_end = 0;
};

struct step_bounds {
  double completion = 0.98; ///< Share that has to be completed.
  double p99_ms = 1000;
};

/// Why the server did not keep up with a step; empty: it did. The backlog grows when more than
/// twice as many are under way at the end as in the middle, and more than arrive in 50 ms.
std::string why_not_converged(const load_step& step, const step_bounds& bounds);

} // namespace insula::load

#include "benchmarks/load/rules.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace insula::load {

namespace {

constexpr double busy_thread = 0.90;
constexpr double busy_files = 0.90;

template <class... Args>
std::string text(const char* format, Args... args) {
  char made[256];
  std::snprintf(made, sizeof made, format, args...);
  return made;
}

double ms(std::uint64_t us) {
  return static_cast<double>(us) / 1000;
}

/// Whether timers were too late beside this operation's percentile; what to say then.
std::string why_late(const operation_result& of, const histogram& lateness, double percent,
                     std::uint64_t enough, double floor_ms, double part) {
  if (of.latency.count() < enough || lateness.count() < enough)
    return {};
  const auto measured = ms(of.latency.percentile_us(percent));
  const auto allowed = std::max(floor_ms, part * measured);
  const auto late = ms(lateness.percentile_us(percent));
  if (late <= allowed)
    return {};
  return text("the client's timers were %.2f ms late at p%.0f, and beside a p%.0f of %.2f ms for ",
              late, percent, percent, measured) +
         of.name + text(" at most %.2f are allowed", allowed);
}

} // namespace

std::vector<std::string> void_reasons(const scenario_result& what, const client_conditions& where) {
  std::vector<std::string> reasons;
  const auto& client = what.client;
  if (client.busiest_thread_share > busy_thread)
    reasons.push_back(text("the client's busiest thread used %.0f %% of a CPU (more than %.0f %%); "
                           "give it more threads, processes or hosts",
                           client.busiest_thread_share * 100, busy_thread * 100));

  for (const auto& each : what.operations)
    if (const auto found = where.lateness.find(each.name); found != where.lateness.end())
      for (const auto& why :
           {why_late(each, found->second, 50, 20, 0.25, where.same_machine ? 0.5 : 0.25),
            why_late(each, found->second, 99, 100, 1, where.same_machine ? 1 : 0.25)})
        if (!why.empty())
          reasons.push_back(why);

  if (where.ran_out_of_files)
    reasons.push_back("the client had no open files left");
  else if (client.open_files_limit > 0 &&
           static_cast<double>(client.open_files_max) >
             busy_files * static_cast<double>(client.open_files_limit))
    reasons.push_back(text("the client had %llu of at most %llu files open",
                           static_cast<unsigned long long>(client.open_files_max),
                           static_cast<unsigned long long>(client.open_files_limit)));

  if (where.open_loop) {
    std::uint64_t attempts = 0, begun_late = 0;
    for (const auto& each : what.operations) {
      attempts += each.attempts();
      begun_late += each.late;
    }
    const double allowed = where.same_machine ? 0.25 : 0.10;
    const auto part =
      attempts == 0 ? 0 : static_cast<double>(begun_late) / static_cast<double>(attempts);
    if (part > allowed)
      reasons.push_back(text("the schedule could not be met: %.0f %% were begun more than a "
                             "millisecond late (more than %.0f %%)",
                             part * 100, allowed * 100));
  }
  return reasons;
}

std::string why_not_converged(const load_step& step, const step_bounds& bounds) {
  const auto completion =
    step.intended == 0 ? 1
                       : static_cast<double>(step.completed) / static_cast<double>(step.intended);
  if (completion < bounds.completion)
    return text("%.1f %% were completed in its time (at least %.0f %%)", completion * 100,
                bounds.completion * 100);
  if (step.p99_ms > bounds.p99_ms)
    return std::isfinite(step.p99_ms)
             ? text("p99 was %.1f ms (at most %.0f)", step.p99_ms, bounds.p99_ms)
             : text("p99 was a failure (at most %.0f ms)", bounds.p99_ms);
  constexpr double soon_seconds = 0.05;
  if (step.open_end > 2 * step.open_middle &&
      static_cast<double>(step.open_end) > soon_seconds * step.rate)
    return text("the backlog grew from %llu to %llu",
                static_cast<unsigned long long>(step.open_middle),
                static_cast<unsigned long long>(step.open_end));
  return {};
}

} // namespace insula::load

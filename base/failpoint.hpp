#pragma once

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

namespace insula {

/// Where a test wants the process to be killed, as `kill -9` does it, or to stand still, as by
/// SIGSTOP. From the environment's INSULA_FAILPOINT: the name of a step, with "stop:" before it to
/// stand still, and "#n" behind it for the n-th time that it is reached.
struct failpoint_plan {
  std::string step;
  std::atomic<long> times_left = 1;
  int signal = SIGKILL;

  explicit failpoint_plan(const char* text) { set(text == nullptr ? "" : text); }

  void set(std::string_view text) {
    constexpr std::string_view stop = "stop:";
    const bool stops = text.substr(0, stop.size()) == stop;
    signal = stops ? SIGSTOP : SIGKILL;
    if (stops)
      text.remove_prefix(stop.size());
    const auto number = text.find('#');
    step = text.substr(0, number);
    times_left = number == std::string_view::npos
                   ? 1
                   : std::strtol(std::string{text.substr(number + 1)}.c_str(), nullptr, 10);
  }
};
inline failpoint_plan planned_failpoint{std::getenv("INSULA_FAILPOINT")};

/// A named step: what is before it has happened, what comes after it has not. Costs a comparison.
inline void failpoint(std::string_view step) {
  if (!planned_failpoint.step.empty() && step == planned_failpoint.step &&
      --planned_failpoint.times_left == 0)
    std::raise(planned_failpoint.signal); // All threads stop or end, and this one first.
}

} // namespace insula

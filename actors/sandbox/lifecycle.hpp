#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace insula::actors {

/// Where a sandbox's object stands. `asleep`: it has a name and maybe a record, and nothing runs.
/// `frozen`: all of it is there and stands still.
enum class phase : std::uint8_t { asleep, starting, running, frozen, stopping, deleting };
inline constexpr std::size_t phases = 6;

inline constexpr std::array<std::string_view, phases> phase_names{"asleep", "starting", "running",
                                                                  "frozen", "stopping", "deleting"};
constexpr std::string_view name_of(phase now) {
  return phase_names[static_cast<std::size_t>(now)];
}

/// The lifecycle as a table. Knows no actor, no clock and no process, so it is tested as it stands.
constexpr bool may_become(phase from, phase to) {
  switch (from) {
    case phase::asleep: return to == phase::starting || to == phase::deleting;
    case phase::starting:
      return to == phase::running || to == phase::asleep || to == phase::deleting;
    case phase::running:
      return to == phase::frozen || to == phase::asleep || to == phase::stopping ||
             to == phase::deleting;
    case phase::frozen:
      return to == phase::running || to == phase::asleep || to == phase::stopping ||
             to == phase::deleting;
    case phase::stopping: return to == phase::asleep || to == phase::deleting;
    case phase::deleting: return false;
  }
  return false;
}

static_assert(!may_become(phase::deleting, phase::starting), "a deleted sandbox stays deleted");
static_assert(!may_become(phase::asleep, phase::running), "nothing runs that was not started");

/// It has been made and has not ended.
constexpr bool is_alive(phase now) {
  return now == phase::running || now == phase::frozen;
}

/// The ladder: what is done with a sandbox that nobody uses, and when. 0: that never.
struct idle_ladder {
  std::chrono::milliseconds freeze_after{0};
  std::chrono::milliseconds stop_after{0};
};

enum class idle_step : std::uint8_t { none, freeze, stop };

/// What is due for one that has been idle for so long.
constexpr idle_step step_due(const idle_ladder& ladder, phase now, std::chrono::nanoseconds idle) {
  if (!is_alive(now))
    return idle_step::none;
  if (ladder.stop_after.count() > 0 && idle >= ladder.stop_after)
    return idle_step::stop;
  return now == phase::running && ladder.freeze_after.count() > 0 && idle >= ladder.freeze_after
           ? idle_step::freeze
           : idle_step::none;
}

/// How long until the next step can be due, which somebody who uses it puts off; none: no step is
/// ahead.
constexpr std::optional<std::chrono::nanoseconds> until_next_step(const idle_ladder& ladder,
                                                                  std::chrono::nanoseconds idle) {
  std::optional<std::chrono::nanoseconds> left;
  for (const auto after : {ladder.freeze_after, ladder.stop_after})
    if (after.count() > 0 && after > idle && (!left || after - idle < *left))
      left = after - idle;
  return left;
}

} // namespace insula::actors

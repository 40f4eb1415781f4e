#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace insula::actors {

/// Where a sandbox's object stands. `asleep`: it has a name and maybe a record, and nothing runs.
enum class phase : std::uint8_t { asleep, starting, running, stopping, deleting };
inline constexpr std::size_t phases = 5;

inline constexpr std::array<std::string_view, phases> phase_names{"asleep", "starting", "running",
                                                                  "stopping", "deleting"};
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
      return to == phase::asleep || to == phase::stopping || to == phase::deleting;
    case phase::stopping: return to == phase::asleep || to == phase::deleting;
    case phase::deleting: return false;
  }
  return false;
}

static_assert(!may_become(phase::deleting, phase::starting), "a deleted sandbox stays deleted");
static_assert(!may_become(phase::asleep, phase::running), "nothing runs that was not started");

} // namespace insula::actors

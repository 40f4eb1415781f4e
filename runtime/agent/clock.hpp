#pragma once

#include <ctime>

namespace insula::runtime::agent {

/// Milliseconds since some moment in the past.
inline long now_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
}

} // namespace insula::runtime::agent

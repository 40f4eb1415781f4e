#pragma once

#include <chrono>

namespace insula::bench {

using clock = std::chrono::steady_clock;

inline double ms_between(clock::time_point from, clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

inline double ms_since(clock::time_point from) {
  return ms_between(from, clock::now());
}

} // namespace insula::bench

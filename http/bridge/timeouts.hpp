#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace insula::http::bridge {

/// A time limit beyond this is the same as this: ten years, so that no clock overflows.
inline constexpr double longest_timeout_ms = 10.0 * 365 * 24 * 3600 * 1000;

/// A client's time limit for those who count in whole milliseconds.
inline std::int64_t whole_milliseconds(double ms) {
  return static_cast<std::int64_t>(std::ceil(std::clamp(ms, -1.0, longest_timeout_ms)));
}

} // namespace insula::http::bridge

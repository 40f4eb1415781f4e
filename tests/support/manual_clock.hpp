#pragma once

#include "base/clock.hpp"

namespace insula::test {

/// A clock that stands still until it is told to move.
class manual_clock final : public clock {
public:
  std::chrono::steady_clock::time_point now() const override { return now_; }
  std::int64_t unix_ms() const override { return start_ms + (now_ - start_).count() / 1'000'000; }

  void advance(std::chrono::nanoseconds by) { now_ += by; }

private:
  static constexpr std::int64_t start_ms = 1'700'000'000'000;
  std::chrono::steady_clock::time_point start_{std::chrono::hours{1000}};
  std::chrono::steady_clock::time_point now_ = start_;
};

} // namespace insula::test

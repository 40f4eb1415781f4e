#pragma once

#include "base/clock.hpp"

#include <string>

namespace insula::test {

/// A clock that stands still until it is told to move.
class manual_clock final : public clock {
public:
  std::chrono::steady_clock::time_point now() const override { return now_; }
  std::int64_t unix_ms() const override {
    return start_ms + jumped_ms_ + (now_ - start_).count() / 1'000'000;
  }
  std::string boot() const override { return "boot-" + std::to_string(boot_); }

  void advance(std::chrono::nanoseconds by) { now_ += by; }
  /// Somebody sets the wall clock.
  void jump(std::chrono::milliseconds by) { jumped_ms_ += by.count(); }
  /// The machine starts again, and now() from another time; all that takes no time at all.
  void restart_machine() {
    ++boot_;
    jumped_ms_ += std::chrono::duration_cast<std::chrono::milliseconds>(now_ - start_).count();
    now_ = start_;
  }

private:
  std::int64_t jumped_ms_ = 0;
  int boot_ = 1;
  static constexpr std::int64_t start_ms = 1'700'000'000'000;
  std::chrono::steady_clock::time_point start_{std::chrono::hours{1000}};
  std::chrono::steady_clock::time_point now_ = start_;
};

} // namespace insula::test

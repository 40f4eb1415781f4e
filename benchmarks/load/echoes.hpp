#pragma once

#include "benchmarks/load/task.hpp"

#include <deque>
#include <functional>
#include <string_view>

namespace insula::load {

/// Which of the bytes that were typed have come back. A terminal echoes in order, so what is no
/// byte that is waited for now is something else that it printed.
class echoes {
public:
  struct key {
    char byte = 0;
    clock::time_point typed;
  };

  /// Asks for each one that has come back.
  explicit echoes(std::function<void(const key&)> on_echo)
      : on_echo_(std::move(on_echo)) {}

  void typed(const key& which) { waiting_.push_back(which); }
  void printed(std::string_view bytes) {
    for (const char each : bytes)
      if (!waiting_.empty() && each == waiting_.front().byte) {
        const auto back = waiting_.front();
        waiting_.pop_front();
        on_echo_(back);
      }
  }

  /// In the order in which they were typed.
  const std::deque<key>& waiting() const { return waiting_; }
  void forget() { waiting_.clear(); }

private:
  std::function<void(const key&)> on_echo_;
  std::deque<key> waiting_;
};

} // namespace insula::load

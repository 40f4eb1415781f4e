#pragma once

#include "base/limits.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace insula::runtime {

/// How long output waits for whoever reads it fastest: that one gets all of it, as from a pipe, as
/// long as it reads at a good rate. Each byte that is read is worth some patience
/// (limits::patience_per_terminal_byte), of which at most limits::terminal_patience is saved up;
/// who reads slowly or not at all has none left soon, and holds nothing up.
class reader_pace {
public:
  using time_point = std::chrono::steady_clock::time_point;

  void has_read_to(std::uint64_t offset, time_point now) {
    if (offset <= read_to_)
      return;
    const auto bytes = std::min<std::uint64_t>(offset - read_to_, limits::terminal_log_bytes);
    const auto worth = static_cast<std::int64_t>(bytes) * limits::patience_per_terminal_byte;
    until_ = std::min(std::max(until_, now) + worth, now + limits::terminal_patience);
    read_to_ = offset;
  }

  /// Whether output that has come to `end` waits now, until() at the latest.
  bool waits(std::uint64_t end, time_point now) const {
    return end > read_to_ + limits::terminal_ahead_bytes && now < until_;
  }
  time_point until() const { return until_; }

private:
  std::uint64_t read_to_ = 0;
  time_point until_{};
};

} // namespace insula::runtime

#pragma once

#include "base/limits.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace insula::runtime {

/// How long output waits for its fastest reader: that reader gets all of it, as from a pipe, as
/// long as it reads at a good rate. Each byte that is read is worth some patience
/// (limits::patience_per_terminal_byte), of which at most limits::terminal_patience is saved up;
/// a reader that is slow or does not read has none left soon, and holds nothing up. A pace without
/// a limit waits for its reader as a pipe does, until that one has gone.
class reader_pace {
public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit reader_pace(bool without_limit = false)
      : without_limit_(without_limit) {}

  /// If there was no limit there is one now, and nothing waits for the reader that has gone. Where
  /// there was one the other readers go on as before.
  void reader_has_gone() {
    if (std::exchange(without_limit_, false))
      until_ = {};
  }

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
    return end > read_to_ + limits::terminal_ahead_bytes && (without_limit_ || now < until_);
  }
  /// Whether so many bytes more, behind `end`, leave in the log what a reader without a limit has
  /// not read.
  bool has_room(std::uint64_t end, std::size_t more) const {
    return !without_limit_ || end + more <= read_to_ + limits::terminal_log_bytes;
  }
  time_point until() const { return without_limit_ ? time_point::max() : until_; }

private:
  bool without_limit_;
  std::uint64_t read_to_ = 0;
  time_point until_{};
};

} // namespace insula::runtime

#pragma once

#include "base/limits.hpp"

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace insula::http {

/// Tokens that are good for one use, from that use until they expire. What a token says of itself
/// has been checked. Any thread.
class used_tokens {
public:
  enum class verdict : std::uint8_t {
    first,
    again, ///< It has been used, or has expired.
    full,  ///< Whether it has been used could not be remembered: it does not count.
  };

  /// `most`: as many are remembered at once.
  explicit used_tokens(std::size_t most = limits::used_tokens)
      : most_(most) {}

  /// Times: milliseconds since 1970. `name`: tells the token from all others.
  verdict use(const std::string& name, std::int64_t expires_ms, std::int64_t now_ms) {
    const std::lock_guard hold{guard_};
    while (!by_end_.empty() && by_end_.begin()->first <= now_ms)
      by_end_.erase(by_end_.begin());
    if (expires_ms <= now_ms) // Nothing is remembered of it any more.
      return verdict::again;
    std::pair token{expires_ms, name};
    if (by_end_.count(token) > 0)
      return verdict::again;
    if (by_end_.size() >= most_)
      return verdict::full;
    by_end_.insert(std::move(token));
    return verdict::first;
  }

private:
  const std::size_t most_;
  std::mutex guard_;
  std::set<std::pair<std::int64_t, std::string>> by_end_;
};

} // namespace insula::http

#pragma once

#include "base/limits.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
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

  /// `most`: as many are remembered at once; `of_one`: and of one sandbox.
  explicit used_tokens(std::size_t most = limits::used_tokens,
                       std::size_t of_one = limits::used_tokens_of_sandbox)
      : most_(most)
      , of_one_(of_one) {}

  /// Times: milliseconds since 1970. `name`: tells the token from all others.
  verdict use(const std::string& sandbox, const std::string& name, std::int64_t expires_ms,
              std::int64_t now_ms) {
    const std::lock_guard hold{guard_};
    while (!by_end_.empty() && by_end_.begin()->expires_ms <= now_ms)
      forget_first();
    if (expires_ms <= now_ms) // Nothing is remembered of it any more.
      return verdict::again;
    const token is{expires_ms, name, sandbox};
    if (by_end_.count(is) > 0)
      return verdict::again;
    auto& mine = of_sandboxes_[sandbox];
    if (by_end_.size() >= most_ || mine >= of_one_) {
      if (mine == 0)
        of_sandboxes_.erase(sandbox);
      return verdict::full;
    }
    ++mine;
    by_end_.insert(is);
    return verdict::first;
  }

private:
  struct token {
    std::int64_t expires_ms;
    std::string name, sandbox;
    bool operator<(const token& other) const {
      return std::tie(expires_ms, name, sandbox) <
             std::tie(other.expires_ms, other.name, other.sandbox);
    }
  };

  void forget_first() {
    const auto of = by_end_.extract(by_end_.begin()).value();
    if (const auto at = of_sandboxes_.find(of.sandbox); --at->second == 0)
      of_sandboxes_.erase(at);
  }

  const std::size_t most_, of_one_;
  std::mutex guard_;
  std::set<token> by_end_;
  std::unordered_map<std::string, std::size_t> of_sandboxes_; ///< How many each has.
};

} // namespace insula::http

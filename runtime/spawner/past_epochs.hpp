#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

namespace insula::runtime::spawner {

/// Under which epochs sandboxes have been commanded last that have ended, by their names; the one
/// whose name came first goes first. Epochs of different names cannot be compared: what has been
/// asleep for long may have a low one.
class past_epochs {
public:
  static constexpr std::size_t most = 16'384;

  void note(const std::string& name, std::uint64_t epoch) {
    if (name.empty() || epoch == 0)
      return;
    auto [at, is_new] = by_name_.try_emplace(name, epoch);
    at->second = std::max(at->second, epoch);
    if (is_new)
      oldest_first_.push_back(name);
    if (oldest_first_.size() <= most)
      return;
    by_name_.erase(oldest_first_.front());
    oldest_first_.pop_front();
  }

  /// 0: it is not known.
  std::uint64_t of(const std::string& name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? 0 : at->second;
  }

  void clear() {
    by_name_.clear();
    oldest_first_.clear();
  }

private:
  std::unordered_map<std::string, std::uint64_t> by_name_;
  std::deque<std::string> oldest_first_;
};

} // namespace insula::runtime::spawner

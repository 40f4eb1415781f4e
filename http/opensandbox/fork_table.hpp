#pragma once

#include "http/opensandbox/lifecycle_json.hpp"

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace insula::http::opensandbox {

/// The forks that this server is making, and those of which nothing came of late. One that has
/// succeeded is told of by its sandbox's record, and is not here. Threads: any.
class fork_table {
public:
  /// None: it is under way from now on. Else the one of that id that is under way already, or that
  /// has failed a moment ago, while what it has left is being removed.
  std::optional<fork_operation> begin(const fork_operation& is) {
    const std::lock_guard lock{mutex_};
    const auto [at, is_new] = all_.try_emplace(is.id, is);
    const auto& known = at->second;
    const bool is_cleaned = known.state == fork_state::failed && known.cleanup_pending &&
                            is.from.began_ms - known.updated_ms < cleanup_patience.count();
    if (!is_new && (known.state != fork_state::failed || is_cleaned))
      return known;
    at->second = is;
    return std::nullopt;
  }

  void put(const fork_operation& is) {
    const std::lock_guard lock{mutex_};
    all_[is.id] = is;
    if (is.state != fork_state::failed)
      return;
    failed_.push_back(is.id);
    if (failed_.size() > most_failed) {
      drop(failed_.front());
      failed_.pop_front();
    }
  }

  /// What a failed one has left is gone.
  void clean(const std::string& id) {
    const std::lock_guard lock{mutex_};
    const auto at = all_.find(id);
    if (at == all_.end() || at->second.state != fork_state::failed)
      return;
    at->second.cleanup_pending = false;
    at->second.snapshot.clear();
  }

  void end(const std::string& id) {
    const std::lock_guard lock{mutex_};
    all_.erase(id);
  }

  std::optional<fork_operation> find(const std::string& id) const {
    const std::lock_guard lock{mutex_};
    const auto at = all_.find(id);
    return at == all_.end() ? std::nullopt : std::optional{at->second};
  }

private:
  static constexpr std::size_t most_failed = 1000;
  static constexpr std::chrono::milliseconds cleanup_patience{60'000};

  void drop(const std::string& id) {
    const auto at = all_.find(id);
    if (at != all_.end() && at->second.state == fork_state::failed)
      all_.erase(at);
  }

  mutable std::mutex mutex_;
  std::map<std::string, fork_operation> all_;
  std::deque<std::string>
    failed_; ///< The oldest first. One that was begun again may be twice here.
};

} // namespace insula::http::opensandbox

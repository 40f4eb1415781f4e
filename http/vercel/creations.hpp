#pragma once

#include <mutex>
#include <set>
#include <string>

namespace insula::http::vercel {

/// The ids of the sandboxes that this server is making. One that is unfinished in its record and is
/// not among them was left by a server that has ended. Threads: any.
class creations {
public:
  /// False: it is being made already.
  bool enter(const std::string& id) {
    const std::lock_guard lock{mutex_};
    return ids_.insert(id).second;
  }
  void leave(const std::string& id) {
    const std::lock_guard lock{mutex_};
    ids_.erase(id);
  }

private:
  std::mutex mutex_;
  std::set<std::string> ids_;
};

} // namespace insula::http::vercel

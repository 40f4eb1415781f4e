#pragma once

#include "actors/protocol/interfaces.hpp"

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace insula::actors {

/// Where an object of a node asks for others: the node's directory, which is made after what every
/// object is made with. Any thread.
class object_link {
public:
  void set(caf::actor_addr directory) {
    const std::lock_guard lock{mutex_};
    directory_ = std::move(directory);
  }
  /// Null: there is none yet, or no more.
  directory_actor get() const {
    const std::lock_guard lock{mutex_};
    return caf::actor_cast<directory_actor>(directory_);
  }

  // While a node looks which bytes of snapshots no record names.

  void begin_sweep() {
    const std::lock_guard lock{mutex_};
    ++sweeps_;
    for (const auto& [name, wanted] : being_taken_)
      if (!wanted.expired())
        taken_.insert(name);
  }
  void end_sweep() {
    const std::lock_guard lock{mutex_};
    if (--sweeps_ == 0)
      taken_.clear();
  }
  /// A snapshot of that name is about to be taken: its record comes later, as long as what is
  /// returned is held.
  std::shared_ptr<void> note_snapshot(const std::string& name) {
    const std::lock_guard lock{mutex_};
    if (sweeps_ > 0)
      taken_.insert(name);
    std::erase_if(being_taken_, [](const auto& each) { return each.second.expired(); });
    auto wanted = std::make_shared<int>(0);
    being_taken_.insert_or_assign(name, wanted);
    return wanted;
  }
  bool is_being_taken(const std::string& name) const {
    const std::lock_guard lock{mutex_};
    const auto found = being_taken_.find(name);
    return found != being_taken_.end() && !found->second.expired();
  }
  bool is_new_snapshot(const std::string& name) const {
    const std::lock_guard lock{mutex_};
    return taken_.contains(name);
  }

private:
  mutable std::mutex mutex_;
  caf::actor_addr directory_;
  unsigned sweeps_ = 0; ///< One may begin before the one before has ended.
  std::set<std::string> taken_;
  std::map<std::string, std::weak_ptr<void>> being_taken_;
};

} // namespace insula::actors

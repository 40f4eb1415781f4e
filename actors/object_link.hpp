#pragma once

#include "actors/protocol/interfaces.hpp"

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>

#include <mutex>

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

private:
  mutable std::mutex mutex_;
  caf::actor_addr directory_;
};

} // namespace insula::actors

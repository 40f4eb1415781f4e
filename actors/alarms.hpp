#pragma once

#include "actors/alarm.hpp"
#include "actors/figures.hpp"
#include "actors/store.hpp"

#include <caf/fwd.hpp>

#include <functional>
#include <memory>
#include <string>

namespace insula::actors {

struct alarms_options {
  store_actor cluster; ///< What is stored in them when it begins to wake, is found there.
  store_actor node;
  const clock* time = nullptr; ///< Not owned.
  std::shared_ptr<actors::figures> figures = std::make_shared<actors::figures>();
  /// Does this node own it? In a cluster others' alarms are theirs. Any thread, quick. None: all.
  /// What has come to be its own, or is no longer, is looked for when it is told to reread.
  std::function<bool(const std::string& owner)> ours = {};
};

/// The clock of a node's alarms. Of those that are due, limits::alarms_at_work are at work at a
/// time; one that fails comes again, ever later.
alarms_actor spawn_alarms(caf::actor_system& system, alarms_options options);

} // namespace insula::actors

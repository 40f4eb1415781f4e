#pragma once

#include "actors/figures.hpp"
#include "actors/slot.hpp"

#include <caf/fwd.hpp>

#include <atomic>
#include <memory>

namespace insula {

/// The pool as its node sees it.
using node_pool_actor = pool_actor::extend<
  // Takes the oldest warm sandbox out of it. What takes its place is started at once. Never fails.
  caf::replies_to<claim_slot>::with<claim_answer>>;

namespace actors {

struct pool_options {
  pool_key key; ///< Nobody else is served.
  runtime::engine* engine = nullptr;
  std::shared_ptr<instance_count> instances;
  runtime::sandbox_spec spec; ///< What each is started from, and its limits until it is claimed.
  std::shared_ptr<actors::figures> figures = std::make_shared<actors::figures>();
  /// As that of sandbox_options.
  std::shared_ptr<const std::atomic<bool>> node_ends = std::make_shared<std::atomic<bool>>(false);
};

/// Keeps as many sandboxes of one kind warm as it is told to. It does nothing before it is primed.
///
/// Rounds: each looks whether what is warm still lives, then starts what is missing or ends the
///         oldest of what is too much. The next one is set when one has ended, whatever happened in
///         it.
/// Starts: in batches, one after the other, never over the node's limit. A start that fails ends
///         them; what says that there is no room ends them until the next round.
node_pool_actor spawn_pool(caf::actor_system& system, pool_options options);

} // namespace actors
} // namespace insula

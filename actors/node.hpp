#pragma once

#include "actors/directory.hpp"
#include "actors/protocol/interfaces.hpp"
#include "actors/sandbox/sandbox.hpp"
#include "storage/store.hpp"

#include <caf/fwd.hpp>

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>

namespace insula::actors {

/// The root of a node's actors: it starts them and ends them. What the options point to must
/// outlive the actor system.
class node {
public:
  /// The two stores are what object.hpp says of kept_in. What is in the node's of owners that the
  /// cluster's does not have is removed. `options.keep` and `options.pool` are filled in here.
  /// `warm`: what the pool of new sandboxes' image keeps, from now on.
  node(caf::actor_system& system, storage::store& cluster, storage::store& local,
       sandbox_options options, const pool_settings& warm = {}, object_kinds kinds = {});

  /// Every actor ends, and answers what it owes. Sandboxes that run go on running: they are the
  /// spawner's.
  ~node();

  node(const node&) = delete;
  node& operator=(const node&) = delete;

  // ---- In a cluster; any thread, and the answers come on any

  /// Nothing here is this node's any more: it ends, and its records stay. Answered when nothing
  /// runs.
  void evict_all(std::function<void(result<void>)> then);
  /// The sandbox is stopped, to go on elsewhere. Errors: limit_reached: not now.
  void hand_over(const std::string& id, std::function<void(result<void>)> then);
  /// The object is not this node's any more: it ends, and its record stays.
  void let_go(const std::string& owner, std::function<void(result<void>)> then);
  /// What another node asks of an object here: see object_routes. Errors: as of the directory.
  void answer_peer(std::string question, std::function<void(result<std::string>)> then);
  /// Looks at all snapshots that the engine has: at the start, and when this node is a member
  /// again. Not at the same time as others of these.
  void sweep_snapshots();
  /// There may be alarms in the stores of objects that have come to be this node's.
  void reread_alarms();

  directory_actor directory() const { return directory_; }

  /// Snapshots of the files of all persistent sandboxes that run, before they end with the server:
  /// of how many that has failed. Any thread.
  std::future<std::uint64_t> keep_files() const;

  const pool_actor& pool() const { return pool_; }

  struct lent_store;

private:
  caf::actor_system* system_;
  node_directory_actor directory_;
  alarms_actor alarms_;
  pool_actor pool_;
  std::shared_ptr<const sandbox_options> options_;
  caf::actor sweep_; ///< Of snapshots. None: there are none.
  std::shared_ptr<lent_store> swept_;
};

} // namespace insula::actors

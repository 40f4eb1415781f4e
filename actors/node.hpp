#pragma once

#include "actors/directory.hpp"
#include "actors/protocol/interfaces.hpp"
#include "actors/sandbox.hpp"
#include "storage/store.hpp"

#include <caf/fwd.hpp>

namespace insula::actors {

/// The root of a node's actors: it starts them and ends them. What the options point to must
/// outlive the actor system.
class node {
public:
  /// The two stores are what object.hpp says of kept_in. What is in the node's of owners that the
  /// cluster's does not have is removed. `options.keep` and `options.pool` are filled in here.
  /// `warm`: what the pool of new sandboxes' image keeps, from now on.
  node(caf::actor_system& system, storage::store& cluster, storage::store& local,
       sandbox_options options, const pool_settings& warm = {});

  /// Every actor ends, and answers what it owes. Sandboxes that run go on running: they are the
  /// spawner's.
  ~node();

  node(const node&) = delete;
  node& operator=(const node&) = delete;

  const directory_actor& directory() const { return directory_; }
  const pool_actor& pool() const { return pool_; }

private:
  directory_actor directory_;
  alarms_actor alarms_;
  pool_actor pool_;
};

} // namespace insula::actors

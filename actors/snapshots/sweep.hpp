#pragma once

#include "actors/directory.hpp"
#include "actors/sandbox/sandbox.hpp"

#include <caf/actor.hpp>

#include <memory>

namespace insula::actors::snapshots {

/// At a node's start, before any snapshot is taken: what the engine has and no record names goes,
/// and a record whose bytes the engine has not says so from now on. It goes on by itself; the node
/// ends it with its other actors.
caf::actor sweep(caf::actor_system& system, std::shared_ptr<const sandbox_options> options,
                 node_directory_actor directory);

} // namespace insula::actors::snapshots

#pragma once

#include "actors/protocol/interfaces.hpp"
#include "actors/sandbox.hpp"

#include <caf/fwd.hpp>

namespace insula::actors {

/// The directory of one node: it makes a sandbox's actor on first use and knows it from then on.
directory_actor spawn_directory(caf::actor_system& system,
                                std::shared_ptr<const sandbox_options> options);

} // namespace insula::actors

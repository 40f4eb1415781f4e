#pragma once

#include "base/io_pool.hpp"

#include <caf/fwd.hpp>

namespace insula::actors {

/// Makes an actor system run its actors on the threads of `pool`, beside sockets, in place of
/// threads of its own. What an actor sends is handled on the same thread, soon after: nobody is
/// woken for it. Delayed messages come from timers of the pool.
///
/// Owner: `pool` outlives the actor system, which ends on none of its threads.
void run_actors_on(io_pool& pool, caf::actor_system_config& settings);

} // namespace insula::actors

#pragma once

#include "actors/sandbox/sandbox.hpp"

#include <caf/fwd.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace insula::actors::snapshots {

/// Makes room for newer snapshots of one origin: those beyond the newest `keep_last` are deleted,
/// or expire after `keep_ms`. One on which a sandbox stands stays, and so does one that is older
/// than `since_ms`, in Unix time: it is of an earlier sandbox of that name.
struct eviction {
  std::string origin;
  std::uint32_t keep_last = 1;
  std::int64_t keep_ms = 0;
  std::int64_t since_ms = 0;
};

/// It goes on by itself, and tells nobody. What it does not come to, the next one does.
void evict_older(caf::actor_system& system, std::shared_ptr<const sandbox_options> options,
                 eviction what);

} // namespace insula::actors::snapshots

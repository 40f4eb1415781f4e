#pragma once

#include "actors/protocol/interfaces.hpp"
#include "base/error.hpp"
#include "runtime/kept_logs.hpp"
#include "storage/store.hpp"

#include <caf/fwd.hpp>

#include <memory>
#include <set>
#include <string>

namespace insula::actors {

struct kept_log_options {
  runtime::kept_logs* in = nullptr; ///< Outlives the actor.
  std::shared_ptr<runtime::kept_logs::reader> log;
  process_end end; ///< What is told at the log's end.
};

/// The log of a command that is there no more, read as that of one that is. For one reader; it ends
/// when nobody holds it.
process_actor spawn_kept_log(caf::actor_system& system, kept_log_options options);

/// The keys of a sandbox's commands whose logs may be kept, by the node's store. Waits for the
/// disk.
result<std::set<std::string>> keys_of_logs(storage::store& local, const std::string& sandbox);

} // namespace insula::actors

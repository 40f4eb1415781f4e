#include "actors/node.hpp"

#include <caf/all.hpp>

namespace insula::actors {

node::node(caf::actor_system& system, storage::store& disk, sandbox_options options) {
  options.store = spawn_store(system, &disk, options.figures->stores);
  directory_ = spawn_directory(system, std::make_shared<const sandbox_options>(std::move(options)));
}

node::~node() {
  // The directory takes its sandboxes with it; the store ends when the last of them lets go of it.
  caf::anon_send_exit(directory_, caf::exit_reason::user_shutdown);
}

} // namespace insula::actors

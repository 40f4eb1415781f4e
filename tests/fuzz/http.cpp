// What a client sends on one connection, to the real server on a socket of its own. Behind it there
// are no sandboxes, so heads and bodies are read to their end and then refused.
#include "actors/pool_scheduler.hpp"
#include "actors/protocol/errors.hpp"
#include "base/io_pool.hpp"
#include "base/log.hpp"
#include "http/server.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/conversation.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <string>

using namespace insula;
using namespace insula::fuzz;

namespace {

directory_actor::behavior_type empty_directory() {
  return {
    [](find_atom, const std::string&, const request_context&) -> caf::result<sandbox_actor> {
      return to_caf({errc::launch_failed, "there are no sandboxes here"});
    },
    [](reach_atom, const std::string&, const request_context&) -> caf::result<sandbox_actor> {
      return to_caf({errc::launch_failed, "there are no sandboxes here"});
    },
    [](delete_atom, const std::string&, const request_context&) -> caf::result<caf::ok_atom> {
      return caf::ok_atom::value;
    },
    [](const list_activations&) { return activation_page{}; },
    [](const list_sandboxes&) { return sandbox_page{}; },
    [](const list_group&) { return group_page{}; },
    [](const define_snapshot& asked) -> caf::result<snapshot_description> { return asked.is; },
    [](const find_snapshot&) -> caf::result<snapshot_description> {
      return to_caf({errc::not_found, "there are no snapshots here"});
    },
    [](const hold_snapshot&) -> caf::result<snapshot_description> {
      return to_caf({errc::not_found, "there are no snapshots here"});
    },
    [](const release_snapshot&) { return caf::ok_atom::value; },
    [](const delete_snapshot&) -> caf::result<snapshot_description> {
      return to_caf({errc::not_found, "there are no snapshots here"});
    },
    [](const compare_snapshots&) { return snapshot_changes{}; },
    [](const list_snapshots&) { return snapshot_page{}; },
  };
}

/// Made once and never taken apart: the fuzzer ends the program where it stands.
class world {
public:
  world()
      : system_(running_on(pool_, config_))
      , server_(pool_, system_, options(), system_.spawn(empty_directory), nullptr) {
    log::set_level(log::level::error);
    must(static_cast<bool>(server_.start()), "the server starts");
  }

  std::uint16_t port() const { return server_.port(); }

private:
  static caf::actor_system_config& running_on(io_pool& pool, caf::actor_system_config& config) {
    actors::run_actors_on(pool, config);
    return config;
  }
  static http::server_options options() {
    http::server_options chosen;
    chosen.port = 0;
    chosen.spool_directory = "/tmp";
    return chosen;
  }

  io_pool pool_{1};
  caf::actor_system_config config_;
  caf::actor_system system_;
  http::server server_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto& server = *new world;
  const auto heard = converse(server.port(), text_of(data, size));
  must(heard.empty() || heard.rfind("HTTP/1.1 ", 0) == 0, "what comes back is HTTP");
  return 0;
}

#include "actors/cluster/basp.hpp"

#include "actors/cluster/links.hpp"
#include "base/id.hpp"
#include "base/limits.hpp"

#include <caf/actor_cast.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/scribe.hpp>
#include <caf/send.hpp>

#include <set>
#include <vector>

namespace insula::actors::cluster {

namespace {

caf::io::scribe_ptr scribe_for(caf::actor_system& system, unique_fd socket) {
  auto& backend = static_cast<caf::io::network::default_multiplexer&>(system.middleman().backend());
  return backend.new_scribe(socket.release());
}

template <class... Values>
std::string written(caf::actor_system& system, const Values&... values) {
  std::vector<char> bytes;
  caf::binary_serializer to{system, bytes};
  if (to(values...))
    return {};
  return {bytes.begin(), bytes.end()};
}

} // namespace

caf::actor basp_broker(caf::actor_system& system) {
  return system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
}

void offer_on(caf::event_based_actor* self, const caf::actor& broker, unique_fd socket,
              std::uint16_t port) {
  self->send(broker, caf::publish_atom::value, scribe_for(self->system(), std::move(socket)), port,
             caf::actor_cast<caf::strong_actor_ptr>(self), std::set<std::string>{});
}

void reach_over(caf::event_based_actor* self, const caf::actor& broker, unique_fd socket,
                std::uint16_t port, std::function<void(const caf::actor& offered)> then) {
  self
    ->request(broker, limits::link_handshake, caf::connect_atom::value,
              scribe_for(self->system(), std::move(socket)), port)
    .then(
      [then = std::move(then)](const caf::node_id&, const caf::strong_actor_ptr& offered,
                               const std::set<std::string>&) {
        if (offered)
          then(caf::actor_cast<caf::actor>(offered));
      },
      [](const caf::error&) {}); // The broker has closed the socket, or the link's time runs out.
}

std::string wire_shape(caf::actor_system& system) {
  // All of its values are as short as can be: their last bytes are what follows the types.
  constexpr std::size_t values = 8 + 8 + 1 + 1 + 1;
  const auto sample =
    caf::make_message(wire_word{}, std::uint64_t{}, std::uint8_t{}, std::string{}, std::string{});
  auto all = written(system, std::vector<caf::strong_actor_ptr>{}, sample);
  all.resize(all.size() < values ? 0 : all.size() - values);
  return all;
}

std::string wire_identity(caf::actor_system& system) {
  return written(system, system.node());
}

void load_links(caf::actor_system_config& settings) {
  settings.load<caf::io::middleman>();
  settings.set("middleman.workers", std::size_t{0}); // Its own thread is faster than handing over.
  settings.set("middleman.enable-automatic-connections", false);
  settings.set("middleman.heartbeat-interval", caf::timespan{limits::link_heartbeat});
  // Whose silence lasts too long is noticed by the link: the broker would also drop those that have
  // just begun.
  settings.set("middleman.connection-timeout", caf::timespan{0});
}

} // namespace insula::actors::cluster

/// In place of libcaf_core's function of this name, out of which CAF makes an actor system's node
/// id. Beside load_links(), so that whoever calls that has this one.
///
/// Source: libcaf_core 0.17.6, node_id.cpp: node_id::default_data::local().
namespace caf::detail {

std::string get_root_uuid() {
  return insula::sandbox_id::generate().str();
}

} // namespace caf::detail

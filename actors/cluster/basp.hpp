#pragma once

#include "base/unique_fd.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>

#include <cstdint>
#include <functional>
#include <string>

/// The one place that knows CAF's wire protocol and the broker that speaks it. There is no port:
/// the broker is handed sockets whose other ends are known.
namespace insula::actors::cluster {

/// The first of the five values in each message between nodes: word, number, code, and two texts.
using wire_word = caf::atom_value;

caf::actor basp_broker(caf::actor_system& system);

/// Has the broker speak through a socket. Who has not dialled offers `self` there, under a `port`
/// that is only a number: one for each peer.
void offer_on(caf::event_based_actor* self, const caf::actor& broker, unique_fd socket,
              std::uint16_t port);

/// The other end of it: `then` gets the actor that is offered there.
void reach_over(caf::event_based_actor* self, const caf::actor& broker, unique_fd socket,
                std::uint16_t port, std::function<void(const caf::actor& offered)> then);

/// With what each message begins on the wire whose content is of the five types above.
std::string wire_shape(caf::actor_system& system);

/// This node's id, as handshakes have it.
std::string wire_identity(caf::actor_system& system);

} // namespace insula::actors::cluster

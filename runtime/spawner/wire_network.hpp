#pragma once

#include "base/unique_fd.hpp"
#include "runtime/gateway/protocol.hpp"

#include <array>
#include <cstdint>

namespace insula::runtime::spawner {

/// Where a sandbox's packets arrive: sockets inside its network namespace, in the order of
/// gateway::op::add. Of a machine without IPv6 those of IPv6 are none, and of a kernel without
/// NFLOG the last three.
using network_sockets = std::array<unique_fd, gateway::max_fds>;

/// Whose a network is.
enum class wired_for : std::uint8_t {
  sandbox,
  mount, ///< The program of one: what it sends to loopback addresses leaves it as all else does,
         ///< since the machine's are meant.
};

/// Gives the network namespace of the process whose pidfd this is, and which is fresh, its loopback
/// interface and addresses, has every address be at home there, and sends all that wants to leave
/// to the sockets that it makes: nobody inside has the right to change that. What asks for a
/// connection waits until the gateway has sent it on. What can be no business of theirs, UDP but to
/// the DNS and all other protocols, is refused on the spot. Takes 0.2 ms. False: errno says why. Of
/// a program with one thread only, which goes there and comes back.
bool wire_network(int process, network_sockets& made, wired_for whom = wired_for::sandbox);

} // namespace insula::runtime::spawner

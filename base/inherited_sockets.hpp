#pragma once

#include "base/unique_fd.hpp"

#include <boost/asio/ip/tcp.hpp>

#include <cstdint>
#include <set>
#include <span>
#include <vector>

/// Sockets that listen, which a server has from the one before it (`insula upgrade`).
namespace insula {

/// A copy of the first of `inherited` that listens at `where`, with the clients that wait in its
/// queue. Port 0: the first at that address. The copy closes on exec. None: no socket listens
/// there.
unique_fd find_inherited(std::span<const int> inherited,
                         const boost::asio::ip::tcp::endpoint& where);

/// The same sockets; those at one of the `definite` ports come last. So a listener at port 0 does
/// not take the socket of a listener that names its port.
std::vector<int> order_inherited(std::vector<int> inherited,
                                 const std::set<std::uint16_t>& definite);

} // namespace insula

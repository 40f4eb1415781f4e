#pragma once

#include "base/unique_fd.hpp"
#include "runtime/egress/opening.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <string>
#include <vector>

namespace insula::runtime::gateway {

/// What asks for a connection in one sandbox's network, and is held there until it is sent on or
/// answered: the kernel has shown it and dropped it. A client whose opening is lost asks again
/// after a second.
class openings {
public:
  using socket = boost::asio::posix::stream_descriptor;

  /// The last three sockets of gateway::op::add; that of IPv6 may be missing.
  openings(boost::asio::io_context& io, unique_fd hears, unique_fd sends, unique_fd sends_ipv6);

  socket& hears() { return hears_; }
  /// Calls it with each opening of the next message. False: there is no message now.
  bool read(const std::function<void(const egress::opening&)>& take);

  /// Sends a packet in that network. To the client of the opening it has written, or to the
  /// listener.
  void answer(const egress::opening& to, const std::string& packet) const;
  void send_on(const egress::opening& which);

  void close();

private:
  void send(const egress::ip_address& to, const std::string& packet) const;

  socket hears_;
  unique_fd sends_, sends_ipv6_;
};

} // namespace insula::runtime::gateway

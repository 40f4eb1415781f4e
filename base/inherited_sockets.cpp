#include "base/inherited_sockets.hpp"

#include <algorithm>
#include <fcntl.h>
#include <optional>
#include <sys/socket.h>

namespace insula {

namespace {

using tcp = boost::asio::ip::tcp;

/// None: it is not bound to an address of IP.
std::optional<tcp::endpoint> address_of(int socket) {
  tcp::endpoint bound;
  auto size = static_cast<socklen_t>(bound.capacity());
  if (::getsockname(socket, bound.data(), &size) != 0 ||
      (bound.data()->sa_family != AF_INET && bound.data()->sa_family != AF_INET6))
    return std::nullopt;
  bound.resize(size);
  return bound;
}

} // namespace

unique_fd find_inherited(std::span<const int> inherited, const tcp::endpoint& where) {
  for (const int socket : inherited)
    if (const auto bound = address_of(socket); bound && bound->protocol() == where.protocol() &&
                                               bound->address() == where.address() &&
                                               (where.port() == 0 || bound->port() == where.port()))
      return unique_fd{::fcntl(socket, F_DUPFD_CLOEXEC, 3)};
  return {};
}

std::vector<int> order_inherited(std::vector<int> inherited,
                                 const std::set<std::uint16_t>& definite) {
  std::stable_partition(inherited.begin(), inherited.end(), [&](int socket) {
    const auto bound = address_of(socket);
    return !bound || !definite.contains(bound->port());
  });
  return inherited;
}

} // namespace insula

#include "runtime/gateway/world.hpp"

#include "runtime/gateway/sockets.hpp"

#include <cstring>
#include <ifaddrs.h>
#include <netinet/in.h>

namespace insula::runtime::gateway {

const egress::reserved_addresses& world::reserved() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < std::chrono::seconds{1})
    return reserved_;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0)
    return reserved_; // As it was.
  looked_ = now;
  reserved_.own.clear();
  for (const auto* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr)
      continue;
    const auto family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6)
      continue;
    socket_address mine;
    std::memcpy(mine.get(), each->ifa_addr,
                family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    reserved_.own.push_back(mine.address());
  }
  ::freeifaddrs(all);
  return reserved_;
}

} // namespace insula::runtime::gateway

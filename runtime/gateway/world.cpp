#include "runtime/gateway/world.hpp"

#include "base/limits.hpp"
#include "runtime/gateway/sockets.hpp"

#include <algorithm>
#include <cstring>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/resource.h>

namespace insula::runtime::gateway {

namespace {

/// Half of the descriptors that this process may have are for connections. The other half is for
/// questions, the tenants' listeners, and what comes between two looks.
fair_places::ceilings connections_of_all() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const auto all = static_cast<std::size_t>(std::min<rlim_t>(files.rlim_max, 1u << 20)) / 2 /
                   limits::gateway_connection_descriptors;
  return {.all = all,
          .kept = all / 4,
          .few = limits::gateway_few_connections,
          .each = limits::gateway_connections};
}

} // namespace

world::world(boost::asio::io_context& on)
    : io(on)
    , time(on)
    , connections(on, connections_of_all())
    , dials(on, {.all = limits::gateway_all_dials,
                 .kept = limits::gateway_kept_dials,
                 .few = limits::gateway_few_dials,
                 .each = limits::gateway_dials,
                 .waiting = limits::gateway_connections,
                 .patience = limits::gateway_dial_patience})
    , pipes(on)
    , buffers(std::make_shared<receive_buffers>(
        receive_buffers::ceilings{.growing = limits::gateway_growing_buffers,
                                  .large = limits::gateway_large_buffers,
                                  .small_bytes = limits::gateway_small_buffer,
                                  .middle_bytes = limits::gateway_middle_buffer,
                                  .large_bytes = limits::gateway_large_buffer,
                                  .quiet = limits::gateway_quiet_buffer}))
    , names(on) {}

void world::leave(tenant_number whose) {
  const auto at = sharers_.find(whose);
  if (at == sharers_.end() || --at->second > 0)
    return;
  sharers_.erase(at);
  dials.forget(whose);
  names.forget(whose);
}

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

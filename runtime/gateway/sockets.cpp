#include "runtime/gateway/sockets.hpp"

#include "base/limits.hpp"
#include "runtime/gateway/protocol.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

// After the one of the C library, whose names it has too.
#include <linux/netfilter_ipv4.h>

namespace insula::runtime::gateway {

namespace {

constexpr int ipv6_original_destination = 80; // IP6T_SO_ORIGINAL_DST; its header is not for C++.
constexpr int receive_buffer_locked = 2;      // SOCK_RCVBUF_LOCK, of linux/socket.h.

} // namespace

socket_address::socket_address(const egress::ip_address& address, std::uint16_t port) {
  if (address.is_ipv4()) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    std::memcpy(&ipv4.sin_addr, address.ipv4().data(), sizeof ipv4.sin_addr);
    std::memcpy(&storage_, &ipv4, size_ = sizeof ipv4);
  } else {
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    std::memcpy(&ipv6.sin6_addr, address.ipv6().data(), sizeof ipv6.sin6_addr);
    std::memcpy(&storage_, &ipv6, size_ = sizeof ipv6);
  }
}

egress::ip_address socket_address::address() const {
  if (family() == AF_INET) {
    egress::ip_address::ipv4_bytes bytes{};
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in&>(storage_).sin_addr,
                bytes.size());
    return egress::ip_address{bytes};
  }
  egress::ip_address::bytes bytes{};
  if (family() == AF_INET6)
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr,
                bytes.size());
  return egress::ip_address{bytes};
}

std::uint16_t socket_address::port() const {
  // Both kinds have it at the same place.
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

unique_fd begin_connect(const socket_address& to, int type) {
  unique_fd made{::socket(to.family(), type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (made && ::connect(made.get(), to.get(), to.size()) != 0 && errno != EINPROGRESS) {
    const int why = errno;
    made.reset();
    errno = why;
  }
  return made;
}

int connect_outcome(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

std::optional<socket_address> original_destination(int socket) {
  socket_address here, wanted;
  if (::getsockname(socket, here.get(), here.room()) != 0)
    return std::nullopt;
  const bool ipv4 = here.family() == AF_INET;
  if (::getsockopt(socket, ipv4 ? int{SOL_IP} : int{SOL_IPV6},
                   ipv4 ? int{SO_ORIGINAL_DST} : ipv6_original_destination, wanted.get(),
                   wanted.room()) != 0)
    return std::nullopt;
  if (wanted.port() == here.port() && wanted.address() == here.address())
    return std::nullopt;
  return wanted;
}

void tune(int socket) {
  const int yes = 1, idle_s = 60, pause_s = 15, tries = 4;
  const unsigned patience_ms =
    15 * 60 * 1000; // For a peer that takes nothing of what waits for it.
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &pause_s, sizeof pause_s);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof patience_ms);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limits::gateway_unsent_bytes,
               sizeof limits::gateway_unsent_bytes);
}

std::size_t receive_buffer(int socket) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  ::getsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, &size);
  return static_cast<std::size_t>(bytes);
}

std::size_t waiting_bytes(int socket) {
  int bytes = 0;
  ::ioctl(socket, FIONREAD, &bytes);
  return static_cast<std::size_t>(std::max(bytes, 0));
}

void limit_receive_buffer(int socket, std::size_t bytes) {
  if (receive_buffer(socket) > bytes) {
    const int half = static_cast<int>(bytes / 2); // The kernel doubles it.
    ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &half, sizeof half);
  } else {
    ::setsockopt(socket, SOL_SOCKET, SO_BUF_LOCK, &receive_buffer_locked,
                 sizeof receive_buffer_locked);
  }
}

void free_receive_buffer(int socket) {
  const int nothing = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_BUF_LOCK, &nothing, sizeof nothing);
}

bool has_ended(int socket) {
  pollfd now{socket, POLLRDHUP, 0};
  return ::poll(&now, 1, 0) > 0;
}

void reset_on_close(int socket) {
  const linger at_once{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

} // namespace insula::runtime::gateway

#include "tests/runtime/probe/probe.hpp"

#include <cstddef>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace insula::probe {

void sockets() {
  const auto open = [](const char* name, long family, long type, long protocol) {
    attempt(name, [=] { return call(SYS_socket, family, type, protocol); });
  };
  open("socket_unix", AF_UNIX, SOCK_STREAM, 0);
  open("socket_inet", AF_INET, SOCK_STREAM, 0);
  open("socket_inet6", AF_INET6, SOCK_DGRAM, 0);
  open("socket_netlink_route", AF_NETLINK, SOCK_RAW, 0);
  open("socket_netlink_audit", AF_NETLINK, SOCK_RAW, 9);
  open("socket_netlink_netfilter", AF_NETLINK, SOCK_RAW, 12);
  open("socket_netlink_kobject", AF_NETLINK, SOCK_RAW, 15);
  open("socket_packet", AF_PACKET, SOCK_RAW, 0);
  open("socket_raw_icmp", AF_INET, SOCK_RAW, 1);
  open("socket_ping", AF_INET, SOCK_DGRAM, 1);
  open("socket_vsock", AF_VSOCK, SOCK_STREAM, 0);
  open("socket_alg", AF_ALG, SOCK_SEQPACKET, 0);
  open("socket_xdp", 44, SOCK_RAW, 0);
  open("socket_rds", 21, SOCK_SEQPACKET, 0);
  open("socket_tipc", 30, SOCK_SEQPACKET, 0);
  open("socket_bluetooth", 31, SOCK_RAW, 0);
  open("socket_can", 29, SOCK_RAW, 1);
  open("socket_key", 15, SOCK_RAW, 2);
  // The kernel looks at 32 bits of an argument, a filter at 64.
  open("socket_packet_high_bits", AF_PACKET | 1L << 32, SOCK_RAW, 0);
  open("socket_audit_high_bits", AF_NETLINK, SOCK_RAW, 9 | 1L << 32);
  open("socket_negative", -1, SOCK_STREAM, 0);
  attempt("socketpair_vsock", [] {
    int ends[2];
    return call(SYS_socketpair, AF_VSOCK, SOCK_STREAM, 0, ends);
  });
  attempt("abstract_of_host", [] {
    const int any = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path + 1, "insula-probe-host");
    const auto size = offsetof(sockaddr_un, sun_path) + 1 + std::strlen("insula-probe-host");
    return ::connect(any, reinterpret_cast<const sockaddr*>(&address),
                     static_cast<socklen_t>(size));
  });
  attempt("control_socket_of_agent", [] { return ::send(3, "x", 1, 0); });
  attempt("interface_down", [] {
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    return ::ioctl(::socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &loopback);
  });
  attempt("interface_new", [] { // A bridge: the oldest way to one.
    return ::ioctl(::socket(AF_UNIX, SOCK_STREAM, 0), 0x89a0, "br0");
  });
  attempt("send_outside", [] {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(443);
    address.sin_addr.s_addr = htonl(0x08080808);
    const auto sent = ::sendto(::socket(AF_INET, SOCK_DGRAM, 0), "x", 1, 0,
                               reinterpret_cast<sockaddr*>(&address), sizeof address);
    return sent < 0 ? -1 : 0;
  });
}

} // namespace insula::probe

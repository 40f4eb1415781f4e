#include "tests/runtime/probe/probe.hpp"

#include <cstddef>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace insula::probe {

namespace {

/// What arguments decide, beyond the families that `sockets` names.
void kinds_of_sockets() {
  const auto open = [](const char* name, long family, long type, long protocol) {
    attempt(name, [=] { return call(SYS_socket, family, type, protocol); });
  };
  const auto pair = [](const char* name, long family, long type, long protocol) {
    attempt(name, [=] {
      int ends[2];
      return call(SYS_socketpair, family, type, protocol, ends);
    });
  };
  constexpr long close_on_exec = SOCK_CLOEXEC | SOCK_NONBLOCK, families = 64, protocols = 300;
  const auto is_common = [](long family) {
    return family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK;
  };
  attempt("socket_other_families", [=] {
    return any_of(0, families, [=](long family) {
      errno = EAFNOSUPPORT;
      return is_common(family) ? -1 : call(SYS_socket, family, SOCK_DGRAM, 0);
    });
  });
  attempt("socketpair_other_families", [=] {
    return any_of(0, families, [=](long family) {
      int ends[2];
      errno = EAFNOSUPPORT;
      return is_common(family) ? -1 : call(SYS_socketpair, family, SOCK_DGRAM, 0, ends);
    });
  });
  open("socket_tcp", AF_INET, SOCK_STREAM | close_on_exec, IPPROTO_TCP);
  open("socket_udp", AF_INET6, SOCK_DGRAM | close_on_exec, IPPROTO_UDP);
  open("socket_mptcp", AF_INET, SOCK_STREAM, 262);
  open("socket_mptcp_high_bits", AF_INET, SOCK_STREAM | 1L << 32, 262 | 1L << 32);
  open("socket_udplite", AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE);
  open("socket_sctp", AF_INET, SOCK_STREAM, IPPROTO_SCTP);
  open("socket_smc", AF_INET, SOCK_STREAM, 256);
  open("socket_l2tp", AF_INET6, SOCK_DGRAM, 115);
  attempt("socket_other_protocols", [] {
    return any_of(1, protocols, [](long protocol) {
      errno = EPROTONOSUPPORT;
      return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP
               ? -1
               : call(SYS_socket, AF_INET, protocol % 2 == 0 ? SOCK_STREAM : SOCK_DGRAM, protocol);
    });
  });
  open("socket_inet_seqpacket", AF_INET, SOCK_SEQPACKET, 0);
  open("socket_inet_packet", AF_INET, SOCK_PACKET, 0x300);
  open("socket_unix_protocol", AF_UNIX, SOCK_STREAM, 7);
  pair("socketpair_unix", AF_UNIX, SOCK_SEQPACKET | close_on_exec, 0);
  pair("socketpair_inet", AF_INET, SOCK_STREAM, 0);
  pair("socketpair_netlink", AF_NETLINK, SOCK_RAW, 0);
  pair("socketpair_vsock_dgram", AF_VSOCK, SOCK_DGRAM, 0);
  pair("socketpair_packet", AF_PACKET, SOCK_RAW, 0);
  pair("socketpair_xdp", 44, SOCK_RAW, 0);
  pair("socketpair_high_bits", AF_VSOCK | 1L << 32, SOCK_DGRAM, 0);
}

/// What can be set of a socket. Most of all: filters, which are compiled.
void options_of_sockets() {
  const auto set = [](const char* name, int family, long level, long option, const void* value,
                      long size) {
    attempt(name, [=] {
      const int any = ::socket(family,
                               level == IPPROTO_TCP   ? SOCK_STREAM
                               : family == AF_NETLINK ? SOCK_RAW
                                                      : SOCK_DGRAM,
                               0);
      const int shared = 1;
      ::setsockopt(any, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof shared);
      return call(SYS_setsockopt, any, level, option, value, size);
    });
  };
  static sock_filter everything[] = {BPF_STMT(BPF_RET | BPF_K, 0xffff)};
  static const sock_fprog filter{1, everything};
  static const int one = 1;
  constexpr long program = sizeof filter;
  set("attach_filter", AF_INET, SOL_SOCKET, SO_ATTACH_FILTER, &filter, program);
  set("attach_filter_unix", AF_UNIX, SOL_SOCKET, SO_ATTACH_FILTER, &filter, program);
  set("attach_filter_netlink", AF_NETLINK, SOL_SOCKET, SO_ATTACH_FILTER, &filter, program);
  set("attach_filter_high_bits", AF_INET, SOL_SOCKET | 1L << 32, SO_ATTACH_FILTER | 1L << 32,
      &filter, program);
  set("attach_bpf", AF_INET, SOL_SOCKET, SO_ATTACH_BPF, &one, sizeof one);
  set("attach_reuseport_cbpf", AF_INET, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, program);
  set("attach_reuseport_ebpf", AF_INET, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &one, sizeof one);
  set("detach_filter", AF_INET, SOL_SOCKET, SO_DETACH_FILTER, &one, sizeof one);
  set("iptables_replace", AF_INET, IPPROTO_IP, 64, bytes,
      sizeof bytes); // Whose rules may have BPF.
  set("tcp_ulp", AF_INET, IPPROTO_TCP, TCP_ULP, "tls", 3);
  // What would be kept for as long as the socket lives, and charged to nobody.
  set("ip_options", AF_INET, IPPROTO_IP, IP_OPTIONS, bytes, 4);
  static const ip_mreqn group{{htonl(0xe00000fb)}, {0}, 1}; // 224.0.0.251 at the loopback.
  set("multicast_join", AF_INET, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group);
  set("multicast_join_source", AF_INET, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, bytes,
      sizeof(ip_mreq_source));
  set("multicast_join_source_high_bits", AF_INET, IPPROTO_IP | 1L << 32,
      IP_ADD_SOURCE_MEMBERSHIP | 1L << 32, bytes, sizeof(ip_mreq_source));
  set("multicast_sources", AF_INET, IPPROTO_IP, IP_MSFILTER, bytes, 16);
  set("multicast_source_group", AF_INET, IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, bytes,
      sizeof(group_source_req));
  set("multicast_block", AF_INET, IPPROTO_IP, MCAST_BLOCK_SOURCE, bytes, sizeof(group_source_req));
  set("multicast_filter", AF_INET, IPPROTO_IP, MCAST_MSFILTER, bytes, sizeof(group_filter));
  set("multicast6_source_group", AF_INET6, IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, bytes,
      sizeof(group_source_req));
  set("multicast6_filter", AF_INET6, IPPROTO_IPV6, MCAST_MSFILTER, bytes, sizeof(group_filter));
  set("anycast_join", AF_INET6, IPPROTO_IPV6, IPV6_JOIN_ANYCAST, bytes, sizeof(ipv6_mreq));
  set("flow_label", AF_INET6, IPPROTO_IPV6, 32, bytes, 32);
  set("packet_options", AF_INET6, IPPROTO_IPV6, 6, bytes, 64);
  set("hop_options", AF_INET6, IPPROTO_IPV6, IPV6_HOPOPTS, bytes, 8);
  set("routing_header", AF_INET6, IPPROTO_IPV6, IPV6_RTHDR, bytes, 8);
  set("tcp_md5_key", AF_INET, IPPROTO_TCP, TCP_MD5SIG, bytes, sizeof(tcp_md5sig));
  set("tcp_ao_key", AF_INET, IPPROTO_TCP, 38, bytes, 256);
  set("zero_copy", AF_INET, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one);
  set("multicast_time_to_live", AF_INET, IPPROTO_IP, IP_MULTICAST_TTL, &one, sizeof one);
  set("only_ipv6", AF_INET6, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
  set("tcp_no_delay", AF_INET, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  set("reuse_address", AF_INET, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
}

} // namespace

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
  attempt("bridge_list", [] { // They load modules before they ask for rights.
    unsigned long arguments[3] = {};
    return ::ioctl(::socket(AF_INET, SOCK_DGRAM, 0), SIOCGIFBR, arguments);
  });
  attempt("vlan_get", [] { return ::ioctl(::socket(AF_INET, SOCK_DGRAM, 0), SIOCGIFVLAN, bytes); });
  kinds_of_sockets();
  options_of_sockets();
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

#include "runtime/egress/opening.hpp"

#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>

#include <cstddef>
#include <utility>

namespace insula::runtime::egress {

namespace {

constexpr std::size_t ipv4_head = 20, ipv6_head = 40, tcp_head = 20, icmp_head = 8;
constexpr std::size_t icmp_sum = 2, tcp_sum = 16; ///< Where the checksums are.
constexpr std::size_t tcp_flags = 13;
constexpr std::uint8_t hops = 64;
/// What an error tells of the packet that it is about: of IPv4 at least this behind the head.
constexpr std::size_t told_of_ipv4 = 8;

std::uint8_t byte(std::string_view from, std::size_t at) {
  return static_cast<std::uint8_t>(from[at]);
}

std::uint32_t number_at(std::string_view from, std::size_t at, std::size_t size) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value = value << 8 | byte(from, at + i);
  return value;
}

void put(std::string& into, std::size_t at, std::uint32_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i)
    into[at + i] = static_cast<char>(value >> 8 * (size - 1 - i));
}

std::string bytes_of(const ip_address& address) {
  if (address.is_ipv4()) {
    const auto bytes = address.ipv4();
    return {bytes.begin(), bytes.end()};
  }
  return {address.ipv6().begin(), address.ipv6().end()};
}

template <class Bytes>
ip_address address_at(std::string_view from, std::size_t at) {
  Bytes bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = byte(from, at + i);
  return ip_address{bytes};
}

/// RFC 1071.
std::uint16_t checksum(std::string_view of) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < of.size(); ++i)
    sum += static_cast<std::uint32_t>(byte(of, i)) << (i % 2 == 0 ? 8 : 0);
  while (sum >> 16 != 0)
    sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

} // namespace

std::optional<opening> opening::read(std::string_view packet) {
  if (packet.empty())
    return std::nullopt;
  opening made;
  const bool ipv4 = byte(packet, 0) >> 4 == 4;
  std::size_t head = ipv6_head;
  if (ipv4)
    head = static_cast<std::size_t>(byte(packet, 0) & 0xf) * 4;
  if ((!ipv4 && byte(packet, 0) >> 4 != 6) || head < ipv4_head || packet.size() < head + tcp_head)
    return std::nullopt;
  constexpr std::size_t ipv4_protocol = 9, ipv6_protocol = 6;
  if (byte(packet, ipv4 ? ipv4_protocol : ipv6_protocol) != IPPROTO_TCP)
    return std::nullopt;
  if (ipv4) {
    made.flow_.from = address_at<ip_address::ipv4_bytes>(packet, 12);
    made.flow_.to = address_at<ip_address::ipv4_bytes>(packet, 16);
  } else {
    made.flow_.from = address_at<ip_address::bytes>(packet, 8);
    made.flow_.to = address_at<ip_address::bytes>(packet, 24);
  }
  packet.remove_prefix(head);
  const auto size = static_cast<std::size_t>(byte(packet, 12) >> 4) * 4;
  constexpr std::uint8_t asked = TH_SYN | TH_ACK | TH_RST | TH_FIN;
  if (size < tcp_head || packet.size() < size || (byte(packet, tcp_flags) & asked) != TH_SYN)
    return std::nullopt;
  made.flow_.from_port = static_cast<std::uint16_t>(number_at(packet, 0, 2));
  made.flow_.to_port = static_cast<std::uint16_t>(number_at(packet, 2, 2));
  made.number_ = number_at(packet, 4, 4);
  made.head_ = packet.substr(0, size);
  return made;
}

/// `body`: with zeros for its checksum.
std::string opening::packet(std::uint8_t protocol, bool back, std::string body) const {
  const auto from = bytes_of(back ? flow_.to : flow_.from),
             to = bytes_of(back ? flow_.from : flow_.to);
  const bool ipv4 = flow_.to.is_ipv4();
  const auto size = static_cast<std::uint32_t>(body.size());
  std::string summed; // What is added to the checksum and never sent.
  if (protocol != IPPROTO_ICMP) {
    summed = from + to + std::string(4, '\0');
    put(summed, summed.size() - 4, size, 4);
    summed += {'\0', '\0', '\0', static_cast<char>(protocol)};
  }
  put(body, protocol == IPPROTO_TCP ? tcp_sum : icmp_sum, checksum(summed + body), 2);
  std::string head(ipv4 ? ipv4_head : ipv6_head - 32, '\0');
  if (ipv4) {
    put(head, 0, 0x45, 1);
    put(head, 2, ipv4_head + size, 2);
    put(head, 6, 0x4000, 2); // Not to be cut into pieces.
    put(head, 8, hops, 1);
    put(head, 9, protocol, 1);
    head.replace(12, 4, from);
    head.replace(16, 4, to);
    put(head, 10, checksum(head), 2);
  } else {
    put(head, 0, 0x60, 1);
    put(head, 4, size, 2);
    put(head, 6, protocol, 1);
    put(head, 7, hops, 1);
    head += from + to;
  }
  return head + body;
}

std::string opening::again() const {
  auto head = head_;
  put(head, tcp_sum, 0, 2);
  return packet(IPPROTO_TCP, false, std::move(head));
}

std::string opening::reset() const {
  std::string head(tcp_head, '\0');
  put(head, 0, flow_.to_port, 2);
  put(head, 2, flow_.from_port, 2);
  put(head, 8, number_ + 1, 4);
  put(head, 12, tcp_head / 4 << 4, 1);
  put(head, tcp_flags, TH_RST | TH_ACK, 1);
  return packet(IPPROTO_TCP, true, std::move(head));
}

std::string opening::unreachable(missing what) const {
  const bool ipv4 = flow_.to.is_ipv4();
  std::string body(icmp_head, '\0');
  if (ipv4) {
    put(body, 0, ICMP_DEST_UNREACH, 1);
    put(body, 1, what == missing::network ? ICMP_NET_UNREACH : ICMP_HOST_UNREACH, 1);
  } else {
    put(body, 0, ICMP6_DST_UNREACH, 1);
    put(body, 1, what == missing::network ? ICMP6_DST_UNREACH_NOROUTE : ICMP6_DST_UNREACH_ADDR, 1);
  }
  body += ipv4 ? again().substr(0, ipv4_head + told_of_ipv4) : again();
  return packet(ipv4 ? std::uint8_t{IPPROTO_ICMP} : std::uint8_t{IPPROTO_ICMPV6}, true,
                std::move(body));
}

} // namespace insula::runtime::egress

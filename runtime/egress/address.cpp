#include "runtime/egress/address.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>

namespace insula::runtime::egress {

namespace {

constexpr unsigned ipv4_prefix = 96;

struct reserved {
  const char* net;
  const char* kind;
};

constexpr std::array reserved_nets{
  reserved{"0.0.0.0/8", "unspecified address"},
  reserved{"10.0.0.0/8", "private address"},
  reserved{"100.64.0.0/10", "private address"},
  reserved{"127.0.0.0/8", "loopback address"},
  reserved{"168.63.129.16/32", "link-local or metadata address"}, // Of a cloud, among public ones.
  reserved{"169.254.0.0/16", "link-local or metadata address"},
  reserved{"172.16.0.0/12", "private address"},
  reserved{"192.0.0.0/24", "special address"},
  reserved{"192.168.0.0/16", "private address"},
  reserved{"198.18.0.0/15", "address of names in sandboxes"},
  reserved{"224.0.0.0/4", "multicast address"},
  reserved{"240.0.0.0/4", "reserved address"},
  reserved{"::/128", "unspecified address"},
  reserved{"::1/128", "loopback address"},
  reserved{"64:ff9b:1::/48", "private address"},
  reserved{"100::/64", "special address"},
  reserved{"fc00::/7", "private address"}, // With the metadata of clouds, fd00:ec2::254.
  reserved{"fe80::/10", "link-local address"},
  reserved{"fec0::/10", "private address"},
  reserved{"ff00::/8", "multicast address"},
};

const std::vector<std::pair<subnet, const char*>>& all_reserved() {
  static const auto all = [] {
    std::vector<std::pair<subnet, const char*>> made;
    for (const auto& each : reserved_nets)
      made.emplace_back(*subnet::parse(each.net), each.kind);
    return made;
  }();
  return all;
}

} // namespace

std::vector<ip_address> embedded_ipv4(const ip_address& address) {
  if (address.is_ipv4())
    return {};
  static const auto compatible = *subnet::parse("::/96"),
                    translated = *subnet::parse("::ffff:0:0:0/96"),
                    nat64 = *subnet::parse("64:ff9b::/96"),
                    local_nat64 = *subnet::parse("64:ff9b:1::/48"),
                    six_to_four = *subnet::parse("2002::/16"), teredo = *subnet::parse("2001::/32");
  const auto& b = address.ipv6();
  const auto four = [&](std::size_t first, std::size_t second, std::size_t third,
                        std::size_t fourth) {
    return ip_address{ip_address::ipv4_bytes{b[first], b[second], b[third], b[fourth]}};
  };
  const auto zero_from = [&](std::size_t first) {
    return b[8] == 0 && std::all_of(b.begin() + static_cast<std::ptrdiff_t>(first), b.end(),
                                    [](auto each) { return each == 0; });
  };
  std::vector<ip_address> all;
  if (compatible.contains(address) || translated.contains(address) || nat64.contains(address))
    all.push_back(four(12, 13, 14, 15));
  if (local_nat64.contains(address)) { // How long the translator's prefix is cannot be seen.
    all.push_back(four(12, 13, 14, 15));
    if (zero_from(11))
      all.push_back(four(6, 7, 9, 10));
    if (zero_from(12))
      all.push_back(four(7, 9, 10, 11));
    if (zero_from(13))
      all.push_back(four(9, 10, 11, 12));
  }
  if (six_to_four.contains(address))
    all.push_back(four(2, 3, 4, 5));
  if (teredo.contains(address)) {
    all.push_back(four(4, 5, 6, 7));
    ip_address::ipv4_bytes client{};
    for (std::size_t i = 0; i < client.size(); ++i)
      client[i] = static_cast<std::uint8_t>(b[12 + i] ^ 0xff);
    all.emplace_back(client);
  }
  constexpr std::uint8_t local_and_group = 0x03;
  if ((b[8] & ~local_and_group) == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe) // ISATAP
    all.push_back(four(12, 13, 14, 15));
  return all;
}

ip_address::ip_address(const ipv4_bytes& ipv4) {
  bytes_[10] = bytes_[11] = 0xff;
  std::copy(ipv4.begin(), ipv4.end(), bytes_.begin() + 12);
}

std::optional<ip_address> ip_address::parse(const std::string& text) {
  if (text.find('\0') != std::string::npos) // inet_pton() stops there.
    return std::nullopt;
  if (ipv4_bytes four{}; ::inet_pton(AF_INET, text.c_str(), four.data()) == 1)
    return ip_address{four};
  if (bytes six{}; ::inet_pton(AF_INET6, text.c_str(), six.data()) == 1)
    return ip_address{six};
  return std::nullopt;
}

bool ip_address::is_ipv4() const {
  static constexpr std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(mapped.begin(), mapped.end(), bytes_.begin());
}

std::string ip_address::text() const {
  char written[INET6_ADDRSTRLEN];
  if (is_ipv4())
    ::inet_ntop(AF_INET, bytes_.data() + 12, written, sizeof written);
  else
    ::inet_ntop(AF_INET6, bytes_.data(), written, sizeof written);
  return written;
}

bool subnet::contains(const ip_address& address) const {
  const auto& mine = base.ipv6();
  const auto& other = address.ipv6();
  const auto whole = prefix / 8;
  if (!std::equal(mine.begin(), mine.begin() + whole, other.begin()))
    return false;
  const auto rest = prefix % 8;
  return rest == 0 || (mine[whole] ^ other[whole]) >> (8 - rest) == 0;
}

std::optional<subnet> subnet::parse(std::string_view text) {
  const auto slash = text.find('/');
  const auto address = ip_address::parse(std::string{text.substr(0, slash)});
  if (!address || slash == std::string_view::npos)
    return std::nullopt;
  const bool ipv4 = text.substr(0, slash).find(':') == std::string_view::npos;
  const auto number = text.substr(slash + 1);
  subnet made{*address, 0};
  const auto [end, why] =
    std::from_chars(number.data(), number.data() + number.size(), made.prefix);
  if (number.empty() || why != std::errc{} || end != number.data() + number.size() ||
      made.prefix > (ipv4 ? 32u : 128u))
    return std::nullopt;
  if (ipv4)
    made.prefix += ipv4_prefix;
  return made;
}

const char* reserved_addresses::kind_of(const ip_address& address) const {
  const auto holds = [&](const subnet& each) { return each.contains(address); };
  if (std::any_of(allowed.begin(), allowed.end(), holds))
    return nullptr;
  for (const auto& [net, kind] : all_reserved())
    if (net.contains(address))
      return kind;
  if (std::find(own.begin(), own.end(), address) != own.end())
    return "address of the node";
  for (const auto& inner : embedded_ipv4(address))
    if (const char* kind = kind_of(inner))
      return kind;
  return nullptr;
}

} // namespace insula::runtime::egress

#include "runtime/egress/name_table.hpp"

#include <algorithm>
#include <array>

namespace insula::runtime::egress {

namespace {

/// The number is in the last bytes of both. Of IPv4 the first address of the range, and its last,
/// are nobody's.
constexpr std::uint32_t first_ipv4 = 198u << 24 | 18u << 16;
constexpr std::array<std::uint8_t, 12> ipv6_prefix{0xfd, 0, 0, 0x10, 0, 0x53, 0, 0, 0, 0, 0, 0};

ip_address ipv4_of(std::uint32_t number) {
  const auto value = first_ipv4 + number;
  return ip_address{ip_address::ipv4_bytes{
    static_cast<std::uint8_t>(value >> 24), static_cast<std::uint8_t>(value >> 16 & 0xff),
    static_cast<std::uint8_t>(value >> 8 & 0xff), static_cast<std::uint8_t>(value & 0xff)}};
}

ip_address ipv6_of(std::uint32_t number) {
  ip_address::bytes bytes{};
  std::copy(ipv6_prefix.begin(), ipv6_prefix.end(), bytes.begin());
  for (int i = 0; i < 4; ++i)
    bytes[12 + static_cast<std::size_t>(i)] =
      static_cast<std::uint8_t>(number >> 8 * (3 - i) & 0xff);
  return ip_address{bytes};
}

std::uint32_t last_four(const ip_address& address) {
  const auto& b = address.ipv6();
  return std::uint32_t{b[12]} << 24 | std::uint32_t{b[13]} << 16 | std::uint32_t{b[14]} << 8 |
         b[15];
}

bool is_inner_ipv6(const ip_address& address) {
  return std::equal(ipv6_prefix.begin(), ipv6_prefix.end(), address.ipv6().begin());
}

} // namespace

bool name_table::is_inner(const ip_address& address) {
  if (address.is_ipv4())
    return last_four(address) >> 17 == first_ipv4 >> 17;
  return is_inner_ipv6(address);
}

void name_table::use(entry& which) {
  order_.splice(order_.begin(), order_, which.place);
}

name_table::addresses name_table::address_of(std::string_view name) {
  const std::string key{name};
  auto at = by_name_.find(key);
  if (at == by_name_.end()) {
    auto number = static_cast<std::uint32_t>(by_number_.size() + 1);
    if (by_number_.size() >= most) { // The one that was not used for the longest gives its number.
      number = order_.back();
      by_name_.erase(by_number_.at(number).name);
      by_number_.erase(number);
      order_.pop_back();
    }
    order_.push_front(number);
    by_number_.emplace(number, entry{key, order_.begin()});
    at = by_name_.emplace(key, number).first;
  }
  use(by_number_.at(at->second));
  return {ipv4_of(at->second), ipv6_of(at->second)};
}

const std::string* name_table::name_of(const ip_address& address) {
  if (!is_inner(address))
    return nullptr;
  const auto number = address.is_ipv4() ? last_four(address) - first_ipv4 : last_four(address);
  const auto at = by_number_.find(number);
  if (at == by_number_.end())
    return nullptr;
  use(at->second);
  return &at->second.name;
}

} // namespace insula::runtime::egress

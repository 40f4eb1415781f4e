#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace insula::runtime::egress {

/// An IPv4 or IPv6 address. One of IPv4 is kept in its form for IPv6 (::ffff:a.b.c.d), so whoever
/// writes it that way means the same.
class ip_address {
public:
  using ipv4_bytes = std::array<std::uint8_t, 4>;
  using bytes = std::array<std::uint8_t, 16>;

  ip_address() = default; ///< "::"
  explicit ip_address(const bytes& ipv6)
      : bytes_(ipv6) {}
  explicit ip_address(const ipv4_bytes& ipv4);

  /// None: it is no address.
  static std::optional<ip_address> parse(const std::string& text);

  bool is_ipv4() const;
  ipv4_bytes ipv4() const { return {bytes_[12], bytes_[13], bytes_[14], bytes_[15]}; }
  const bytes& ipv6() const { return bytes_; }
  std::string text() const;

  // Its comparison with 0 is taken for one of pointers.
  auto operator<=>(const ip_address&) const = default; // NOLINT(modernize-use-nullptr)

private:
  bytes bytes_{};
};

/// The addresses of IPv4 that an address of IPv6 may lead to, since a translator or a tunnel on the
/// way makes that of it: IPv4-compatible (RFC 4291), IPv4-translated (RFC 2765), NAT64 (RFC 6052,
/// and with RFC 8215's prefix in each form that the address can have), 6to4 (RFC 3056), Teredo (RFC
/// 4380: the client and the server), ISATAP (RFC 5214, below any prefix). Empty: none.
std::vector<ip_address> embedded_ipv4(const ip_address& address);

struct subnet {
  ip_address base;
  unsigned prefix = 128; ///< Of the form for IPv6: 96 more than what is written for IPv4.

  bool contains(const ip_address& address) const;
  /// Of insula::normalise_target()'s form. None: it is no subnet.
  static std::optional<subnet> parse(std::string_view text);
};

/// Addresses that no policy opens: the machine's own, and those that only a machine at this place
/// can reach.
struct reserved_addresses {
  std::vector<ip_address> own; ///< Of this machine's interfaces.
  std::vector<subnet> allowed; ///< What the operator opens all the same.

  /// What kind it is of, in words; null: it may be dialled. An address that may
  /// lead to others of IPv4 (embedded_ipv4) is judged by these, too.
  const char* kind_of(const ip_address& address) const;
};

} // namespace insula::runtime::egress

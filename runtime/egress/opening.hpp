#pragma once

#include "runtime/egress/address.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace insula::runtime::egress {

/// The two ends of a connection of TCP, as the client sees them.
struct tcp_flow {
  ip_address from, to;
  std::uint16_t from_port = 0, to_port = 0;

  auto operator<=>(const tcp_flow&) const = default; // NOLINT(modernize-use-nullptr)
};

/// The packet that asks for a connection (SYN), and what it can be answered with. All that is
/// written is a whole IP packet, as a raw socket sends it.
class opening {
public:
  /// Of an IP packet, whose checksums may be missing. None: it is no such packet.
  static std::optional<opening> read(std::string_view packet);

  const tcp_flow& flow() const { return flow_; }
  std::uint32_t number() const { return number_; } ///< Where the client begins to count.

  /// As it came, without data.
  std::string again() const;
  /// There is nobody at that port.
  std::string reset() const;
  /// There is no way to that network, or to that address in it.
  enum class missing { network, host };
  std::string unreachable(missing what) const;

private:
  std::string packet(std::uint8_t protocol, bool back, std::string body) const;

  tcp_flow flow_;
  std::uint32_t number_ = 0;
  std::string head_; ///< Of TCP, with its options.
};

} // namespace insula::runtime::egress

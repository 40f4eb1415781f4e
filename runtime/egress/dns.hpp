#pragma once

#include "runtime/egress/address.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Messages of the DNS (RFC 1035), as far as the gateway has to read and write them. Pure; what
/// comes in is untrusted.
namespace insula::runtime::egress::dns {

inline constexpr std::size_t max_message = 65'535;
inline constexpr std::size_t plain_udp = 512;    ///< What anybody takes in a datagram,
inline constexpr std::size_t largest_udp = 4096; ///< and what is ever sent in one.

enum : std::uint16_t {
  type_a = 1,
  type_cname = 5,
  type_soa = 6,
  type_aaaa = 28,
  type_opt = 41,
  type_svcb = 64,
  type_https = 65,
  type_any = 255,
};

enum class status : std::uint8_t { good = 0, format = 1, failed = 2, no_name = 3, refused = 5 };

struct question {
  std::uint16_t id = 0;
  std::string name; ///< As plain_name() has it; empty: one that nobody can have, or the root.
  std::uint16_t type = 0;
  std::uint16_t of_class = 1;
  bool recursion = false;
  std::size_t udp_bytes = plain_udp; ///< What the asker takes in a datagram.
  std::string raw; ///< The question's section as it came, to be repeated in the answer.
};

/// None: it is no question that can be answered, not even with an error. More than one question is
/// none.
std::optional<question> read_question(std::string_view message);

/// With no answer in it.
std::string write_status(const question& asked, status how);
/// For a datagram that would be too small for the answer.
std::string write_truncated(const question& asked);
/// `addresses`: those of the question's own kind are told.
std::string write_addresses(const question& asked, const std::vector<ip_address>& addresses,
                            std::uint32_t ttl);

/// A question of our own. `name` is plain.
std::string write_question(std::uint16_t id, std::string_view name, std::uint16_t type);
/// The asker's, under our own id.
std::string forward(const question& asked, std::uint16_t id);

struct reply {
  std::uint16_t id = 0;
  status how = status::good;
  bool truncated = false;
  bool repeats = false; ///< The question is the one that was asked.
  bool has_services =
    false; ///< HTTPS or SVCB records, which carry addresses and keys of their own.
  std::vector<ip_address> addresses;
  std::uint32_t ttl = 0; ///< The least of the addresses.
  /// How long it counts that there is nothing (RFC 2308). None: it is not said.
  std::optional<std::uint32_t> negative_ttl;
};

/// None: it is no reply. `asked`: what write_question() or forward() gave.
std::optional<reply> read_reply(std::string_view message, std::string_view asked);

/// The same message under another id.
std::string with_id(std::string_view message, std::uint16_t id);

} // namespace insula::runtime::egress::dns

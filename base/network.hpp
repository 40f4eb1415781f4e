#pragma once

#include "base/error.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What a sandbox may reach, and what it has: words that the layers share. Who decides by them is
/// the egress gateway.
namespace insula {

/// One rule of a policy. Its target is a domain ("a.example", "*.a.example" for any depth below it,
/// "api.*.example" for exactly one label, "*" for everything, also what has no name), or a subnet
/// ("10.0.0.0/8", "2001:db8::/32"; a lone address is one of its own).
struct egress_rule {
  bool allow = false;
  std::string target; ///< As normalise_target() gives it.

  bool operator==(const egress_rule&) const = default;
};

/// Ordered rules and a default: the first rule that matches decides. Subnets are compared with the
/// address that is really dialled, domains with the name that a client asks for.
struct egress_policy {
  bool allow_rest = true; ///< What no rule matches.
  std::vector<egress_rule> rules;
  bool dry_run = false;   ///< Everything passes; what would have been refused is recorded.
  bool match_host = true; ///< Plain HTTP on port 80 is known by its Host.

  static egress_policy allow_all() { return {}; }
  static egress_policy deny_all() { return {.allow_rest = false}; }

  bool operator==(const egress_policy&) const = default;
};

inline constexpr std::size_t max_egress_rules = 4096;

/// A domain in lower case without its last dot, or a subnet in the kernel's spelling with no bits
/// behind its prefix. Errors: invalid_request, which says what is wrong.
result<std::string> normalise_target(std::string_view target);

/// Is this target, which is normal, a subnet? Else it is a domain.
bool is_subnet(std::string_view target);

/// As lines of text: how a policy is stored, and how the gateway is told it.
std::string to_text(const egress_policy& policy);
/// Errors: invalid_request, for a text that to_text() has not written.
result<egress_policy> policy_from_text(std::string_view text);

/// Something that was not let through, or in a dry run would not have been.
struct network_refusal {
  std::int64_t at_ms = 0;   ///< Unix time.
  std::string protocol;     ///< "tcp", "udp" or "dns".
  std::string name;         ///< That was asked for; empty: none was.
  std::string address;      ///< Empty: it did not come to one.
  std::uint16_t port = 0;   ///< Of a question to the DNS: 53.
  std::string rule;         ///< "deny 10.0.0.0/8", "default", or why no rule could allow it.
  bool let_through = false; ///< In a dry run.
};

/// How a connection that was let out has come to nothing. What says most stands first.
enum class connection_failure : std::uint8_t {
  refused,     ///< There is nobody at that port.
  reset,       ///< In the middle, by the other end.
  timed_out,   ///< Nobody has answered.
  unreachable, ///< There is no way there.
  unresolved,  ///< Its name leads nowhere, or nobody knows where.
};
inline constexpr std::size_t connection_failures = 5;
/// "refused", "timed_out", ...
std::string_view to_text(connection_failure how);

struct network_failure {
  std::int64_t at_ms = 0; ///< Unix time.
  std::string protocol;   ///< "tcp".
  std::string name;       ///< That was asked for; empty: none was.
  std::string address;    ///< That was tried last; empty: none was.
  std::uint16_t port = 0;
  connection_failure reason = connection_failure::refused;
};

/// Of all sandboxes of a node, since its gateway's start.
struct network_totals {
  std::uint64_t refusals = 0;
  std::array<std::uint64_t, connection_failures> failures{}; ///< Of each kind.
};

/// What a rule about requests has done, since it came.
struct rule_figures {
  std::uint64_t requests = 0;
  std::uint64_t bytes_in = 0;  ///< Bodies of answers.
  std::uint64_t bytes_out = 0; ///< Bodies of requests.
  unsigned last_status = 0;    ///< 0: there was none.
};

/// Since the sandbox's start.
struct network_figures {
  std::uint64_t bytes_in = 0;  ///< To the sandbox.
  std::uint64_t bytes_out = 0; ///< From it.
  std::uint64_t connections = 0;
  std::uint64_t open_connections = 0; ///< Now.
  std::uint64_t refusals = 0;
  std::vector<network_refusal> last_refusals; ///< The newest first, at most max_kept_refusals.
  std::uint64_t gateway_us = 0; ///< The processor's time that the gateway has spent for it.
  std::uint64_t failures = 0;
  std::vector<network_failure> last_failures; ///< As last_refusals.
  std::vector<rule_figures> rules; ///< Of those about requests, in their order; no text has them.
};

inline constexpr std::size_t max_kept_refusals = 64;

/// As lines of text, and back. Errors: invalid_request.
std::string to_text(const network_figures& figures);
result<network_figures> figures_from_text(std::string_view text);
std::string to_text(const network_totals& totals);
result<network_totals> totals_from_text(std::string_view text);

/// A port that something in a sandbox listens at.
struct listening_port {
  std::string address; ///< "127.0.0.1", "::", ...
  std::uint16_t port = 0;
  std::int32_t pid = 0; ///< As the sandbox sees it; 0: it is not known whose it is.
  std::string process;  ///< Its name; at most 15 bytes, as the kernel keeps it.
};

} // namespace insula

#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"
#include "base/request_rules.hpp"
#include "http/api/port_links.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Network policies and ports as JSON. Texts are read strictly: what is not known is an error that
/// names it, since a rule that is overlooked is a hole.
namespace insula::http::json {

/// Body of PUT .../network, in one of these forms:
///   {"mode": "allow-all" | "deny-all"}
///   {"default": "allow" | "deny", "rules": [{"action": "allow" | "deny", "target": "…"}],
///    "dry_run": false, "match_host": true}; a rule that allows a domain may have a "match"
///    (http/sandboxes/request_rules_json.hpp) and one of
///      "transform": {"headers": {"name": "value"}}, "forward": "https://…",
///      "respond": {"status": 403, "headers": {"name": "value"}, "body": "…"}
///   {"allow": ["…"] | {"…": []}, "subnets": {"allow": ["…"], "deny": ["…"]}}
/// Of the last, {} included: denied subnets come first, then allowed ones, then domains, and
/// nothing else passes. Errors: invalid_request; limit_reached (more than max_egress_rules).
struct network_body {
  egress_policy policy;
  std::vector<request_rule> requests; ///< With their values.
};
result<network_body> read_network_body(std::string_view text);

/// {"policy":{…},"running":true,"figures":{…}}; "figures" is null unless it runs. Rules about
/// requests have the names of their headers in place of these.
std::string write_network(const network_state& state);

/// {"port":3000,"expires_in_s":3600}; the latter is 1 to 30 days, an hour unless given. Errors:
/// invalid_request.
struct preview_body {
  std::uint16_t port = 0;
  std::uint32_t expires_in_s = 3600;
};
result<preview_body> read_preview_body(std::string_view text);

/// {"port":3000,"url":"…","path":"…","token":"…","expires_at":"2026-01-01T00:00:00Z"}; the last two
/// are null where no token is needed, and the url where the id is too long for one.
std::string write_preview_link(std::uint16_t port, const port_link& link);

/// {"ready":true,"waited_ms":12}
std::string write_port_ready(std::uint64_t waited_ms);

/// {"ports":[{"port":8000,"address":"127.0.0.1","pid":12,"process":"python3"}]}; what is not known
/// is left out.
std::string write_ports(const std::vector<listening_port>& ports);

} // namespace insula::http::json

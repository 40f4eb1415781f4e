#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"

#include <string>
#include <string_view>
#include <vector>

/// Network policies and ports as JSON. Texts are read strictly: what is not known is an error that
/// names it, since a rule that is overlooked is a hole.
namespace insula::http::json {

/// Body of PUT .../network, in one of these forms:
///   {"mode": "allow-all" | "deny-all"}
///   {"default": "allow" | "deny", "rules": [{"action": "allow" | "deny", "target": "…"}],
///    "dry_run": false, "match_host": true}
///   {"allow": ["…"] | {"…": []}, "subnets": {"allow": ["…"], "deny": ["…"]}}
/// Of the last, {} included: denied subnets come first, then allowed ones, then domains, and
/// nothing else passes. Errors: invalid_request; limit_reached (more than max_egress_rules).
result<egress_policy> read_network_policy(std::string_view text);

/// {"policy":{…},"running":true,"figures":{…}}; "figures" is null unless it runs.
std::string write_network(const network_state& state);

/// {"ports":[{"port":8000,"address":"127.0.0.1","pid":12,"process":"python3"}]}; what is not known
/// is left out.
std::string write_ports(const std::vector<listening_port>& ports);

} // namespace insula::http::json

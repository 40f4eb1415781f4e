#pragma once

#include "base/error.hpp"
#include "base/network.hpp"
#include "http/json/document.hpp"

#include <string>
#include <string_view>
#include <vector>

/// Egress policies as OpenSandbox's clients say them.
namespace insula::http::opensandbox {

/// {"defaultAction":"allow"|"deny","egress":[{"action":…,"target":…}]}; whatever says nothing
/// denies everything. Errors: invalid_request; limit_reached
/// (more than max_egress_rules).
result<egress_policy> read_policy(std::string_view text);
result<egress_policy> read_policy(const json::value& body);
/// [{"action":…,"target":…}], at least one.
result<std::vector<egress_rule>> read_rules(std::string_view text);
/// ["target", …], which are normal in the answer.
result<std::vector<std::string>> read_targets(std::string_view text);
/// {"status":"ok","mode":"enforcing",…,"policy":{…}}
std::string write_policy(const egress_policy& policy);

} // namespace insula::http::opensandbox

#include "http/vercel/policy.hpp"

#include <string_view>
#include <tuple>
#include <utility>

namespace insula::http::vercel {

namespace {

std::optional<refusal> add_target(const std::string& text, bool is_subnet_wanted,
                                  const std::string& where, std::vector<std::string>& into) {
  auto target = normalise_target(text);
  if (!target)
    return bad_request("networkPolicy." + where + ": " + target.reason().message);
  if (is_subnet(*target) != is_subnet_wanted)
    return bad_request(
      "networkPolicy." + where + ": " + text +
      (is_subnet_wanted ? " is no subnet" : " is a subnet; it belongs into subnets"));
  if (into.size() >= max_egress_rules)
    return bad_request("networkPolicy." + where + " has more than " +
                       std::to_string(max_egress_rules) + " entries");
  into.push_back(std::move(*target));
  return std::nullopt;
}

std::optional<refusal> add_targets(const json::value* list, bool subnets, const std::string& where,
                                   std::vector<std::string>& into) {
  if (list == nullptr)
    return std::nullopt;
  if (!list->IsArray())
    return bad_request("networkPolicy." + where + " must be an array of strings");
  for (const auto& each : list->GetArray()) {
    if (!each.IsString())
      return bad_request("networkPolicy." + where + " must be an array of strings");
    if (auto wrong = add_target(json::string_of(each), subnets, where, into))
      return wrong;
  }
  return std::nullopt;
}

/// {"domain": [Rule]}
std::optional<refusal> add_domains_with_rules(const json::value& map, network_wish& into) {
  for (const auto& [name, rules] : map.GetObject()) {
    const auto domain = json::string_of(name);
    if (!rules.IsArray())
      return bad_request("networkPolicy.allow[" + domain + "] must be an array of rules");
    if (!rules.Empty())
      return bad_request(
        "networkPolicy.allow[" + domain +
        "]: rules with transform, forwardURL or response are not supported by this "
        "server yet");
    if (auto wrong = add_target(domain, false, "allow", into.domains))
      return wrong;
  }
  return std::nullopt;
}

std::optional<refusal> read_mode(const json::value& given, const std::string& mode,
                                 network_wish& into) {
  if (mode == "allow-all" || mode == "default-allow") {
    into.mode = network_wish::kind::allow_all;
    return std::nullopt;
  }
  if (mode == "deny-all" || mode == "default-deny") {
    into.mode = network_wish::kind::deny_all;
    return std::nullopt;
  }
  if (mode != "custom")
    return bad_request("networkPolicy.mode must be allow-all, deny-all or custom");
  into.mode = network_wish::kind::custom;
  for (const auto* name : {"injectionRules", "forwardRules"})
    if (const auto* rules = json::find(given, name);
        rules != nullptr && rules->IsArray() && !rules->Empty())
      return bad_request(std::string{"networkPolicy."} + name +
                         " are not supported by this server yet");
  for (auto [name, subnets, to] : {std::tuple{"allowedDomains", false, &into.domains},
                                   std::tuple{"allowedCIDRs", true, &into.allowed},
                                   std::tuple{"deniedCIDRs", true, &into.denied}})
    if (auto wrong = add_targets(json::find(given, name), subnets, name, *to))
      return wrong;
  return std::nullopt;
}

std::optional<refusal> read_wish(const json::value& given, network_wish& into) {
  into = {};
  if (!given.IsObject())
    return bad_request("networkPolicy must be an object");
  if (const auto* mode = json::find(given, "mode")) {
    if (!mode->IsString())
      return bad_request("networkPolicy.mode must be a string");
    return read_mode(given, json::string_of(*mode), into);
  }
  into.mode = network_wish::kind::custom;
  if (const auto* allow = json::find(given, "allow"); allow != nullptr && allow->IsObject()) {
    if (auto wrong = add_domains_with_rules(*allow, into))
      return wrong;
  } else if (auto wrong = add_targets(allow, false, "allow", into.domains)) {
    return wrong;
  }
  const auto* subnets = json::find(given, "subnets");
  if (subnets != nullptr && !subnets->IsObject())
    return bad_request("networkPolicy.subnets must be an object");
  if (subnets == nullptr)
    return std::nullopt;
  if (auto wrong = add_targets(json::find(*subnets, "allow"), true, "subnets.allow", into.allowed))
    return wrong;
  return add_targets(json::find(*subnets, "deny"), true, "subnets.deny", into.denied);
}

} // namespace

std::optional<refusal> read_policy(const json::value& given, network_wish& into) {
  if (auto wrong = read_wish(given, into))
    return wrong;
  if (into.domains.size() + into.allowed.size() + into.denied.size() > max_egress_rules)
    return bad_request("networkPolicy has more than " + std::to_string(max_egress_rules) +
                       " entries");
  return std::nullopt;
}

egress_policy policy_of(const network_wish& wish) {
  if (wish.mode == network_wish::kind::allow_all)
    return egress_policy::allow_all();
  auto policy = egress_policy::deny_all();
  // Plain HTTP has no name that anybody vouches for.
  policy.match_host = false;
  for (const auto& [allow, targets] :
       {std::pair{false, &wish.denied}, std::pair{true, &wish.allowed},
        std::pair{true, &wish.domains}})
    for (const auto& each : *targets)
      policy.rules.push_back({allow, each});
  return policy;
}

void write_policy(json::ascii_writer& out, const network_wish& wish) {
  out.begin_object();
  const auto list = [&out](std::string_view name, const std::vector<std::string>& all) {
    out.key(name).begin_array();
    for (const auto& each : all)
      out.text(each);
    out.end_array();
  };
  switch (wish.mode) {
    case network_wish::kind::allow_all: out.member("mode", "allow-all"); break;
    case network_wish::kind::deny_all: out.member("mode", "deny-all"); break;
    case network_wish::kind::custom:
      out.member("mode", "custom");
      list("allowedDomains", wish.domains);
      list("allowedCIDRs", wish.allowed);
      list("deniedCIDRs", wish.denied);
      break;
  }
  out.end_object();
}

} // namespace insula::http::vercel

#include "http/vercel/policy.hpp"

#include "base/sealed_rules.hpp"
#include "http/sandboxes/policy_json.hpp"
#include "http/sandboxes/request_rules_json.hpp"
#include "http/vercel/members.hpp"

#include <algorithm>
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

/// The member: refusals say for which domain.
std::optional<refusal> read_transform(const json::value& given, request_rule& into) {
  if (!given.IsArray() || given.Size() != 1 || !given[0].IsObject())
    return bad_request("transform must be an array of one object");
  if (const auto unknown = only(given[0], {"headers"}, " in transform"))
    return bad_request(unknown->message);
  const auto* headers = json::find(given[0], "headers");
  if (headers == nullptr)
    return bad_request("transform must have headers");
  auto all = read_headers(*headers);
  if (!all)
    return bad_request(all.reason().message);
  into.action = transform_action{std::move(*all)};
  return std::nullopt;
}

std::optional<refusal> read_forward(const json::value& given, request_rule& into) {
  if (!given.IsString())
    return bad_request("forwardURL must be a string");
  auto url = normalise_forward_url(json::text_of(given));
  if (!url)
    return bad_request("forwardURL: " + url.reason().message);
  into.action = forward_action{std::move(*url)};
  return std::nullopt;
}

std::optional<refusal> read_response(const json::value& given, request_rule& into) {
  if (!given.IsObject())
    return bad_request("response must be an object");
  if (const auto unknown =
        only(given, {"statusCode", "headers", "body", "contentType"}, " in response"))
    return bad_request(unknown->message);
  respond_action made;
  const auto* status = json::find(given, "statusCode");
  const auto code = status == nullptr ? std::nullopt : whole_number(*status);
  if (!code || *code < 200 || *code > 599)
    return bad_request("response.statusCode must be 200 to 599");
  made.status = static_cast<unsigned>(*code);
  if (const auto* headers = json::find(given, "headers")) {
    auto all = read_headers(*headers);
    if (!all)
      return bad_request("response: " + all.reason().message);
    made.headers = std::move(*all);
  }
  std::string type;
  for (auto wrong : {read_text(given, "contentType", type), read_text(given, "body", made.body)})
    if (wrong)
      return wrong;
  if (made.body == redacted)
    return bad_request("response.body is <redacted>, which answers show in place of it");
  if (!made.body.empty() && type.empty())
    return bad_request("response.contentType is required with a body");
  if (!type.empty())
    made.headers.emplace_back("content-type", type);
  into.action = std::move(made);
  return std::nullopt;
}

/// The match, and the one action that it has of these.
std::optional<refusal> read_rule(const json::value& given, request_rule& into) {
  using reader = std::optional<refusal> (*)(const json::value&, request_rule&);
  if (!given.IsObject())
    return bad_request("a rule must be an object");
  if (const auto unknown =
        only(given, {"match", "transform", "forwardURL", "response"}, " in a rule"))
    return bad_request(unknown->message);
  std::size_t actions = 0;
  for (const auto& [name, read] : {std::pair<const char*, reader>{"transform", &read_transform},
                                   std::pair<const char*, reader>{"forwardURL", &read_forward},
                                   std::pair<const char*, reader>{"response", &read_response}})
    if (const auto* action = json::find(given, name)) {
      ++actions;
      if (auto wrong = read(*action, into))
        return wrong;
    }
  if (actions != 1)
    return bad_request("a rule must have one of transform, forwardURL and response");
  if (const auto* match = json::find(given, "match")) {
    auto made = read_match(*match);
    if (!made)
      return bad_request(made.reason().message);
    into.match = std::move(*made);
  }
  return std::nullopt;
}

/// {"domain": [Rule]}
std::optional<refusal> add_domains_with_rules(const json::value& map, network_wish& into) {
  for (const auto& [name, rules] : map.GetObject()) {
    const auto domain = json::string_of(name);
    const auto where = "networkPolicy.allow[" + domain.substr(0, 256) + "]";
    if (!rules.IsArray())
      return bad_request(where + " must be an array of rules");
    if (auto wrong = add_target(domain, false, "allow", into.domains))
      return wrong;
    for (const auto& each : rules.GetArray()) {
      request_rule made{into.domains.back(), {}, {}};
      if (auto wrong = read_rule(each, made))
        return bad_request(where + ": " + wrong->message);
      into.rules.push_back(std::move(made));
    }
  }
  return std::nullopt;
}

/// [{"domain", the action's own member, "match"}], of a policy in the form of the REST API.
std::optional<refusal> add_rules(const json::value& given, const char* list, const char* action,
                                 network_wish& into) {
  const auto* all = json::find(given, list);
  if (all == nullptr || all->IsNull())
    return std::nullopt;
  const auto where = std::string{"networkPolicy."} + list;
  if (!all->IsArray())
    return bad_request(where + " must be an array");
  for (const auto& each : all->GetArray()) {
    if (!each.IsObject())
      return bad_request(where + "'s elements must be objects");
    if (const auto unknown = only(each, {"domain", "match", action}, " in " + where))
      return bad_request(unknown->message);
    const auto *domain = json::find(each, "domain"), *what = json::find(each, action);
    if (domain == nullptr || !domain->IsString() || what == nullptr)
      return bad_request(where + "'s elements must have domain and " + action);
    const auto target = normalise_target(json::string_of(*domain));
    if (!target || is_subnet(*target))
      return bad_request(where + ": " + json::string_of(*domain).substr(0, 256) + " is no domain");
    request_rule made{*target, {}, {}};
    std::optional<refusal> wrong;
    if (std::string_view{action} == "headers") {
      auto headers = read_headers(*what);
      if (headers)
        made.action = transform_action{std::move(*headers)};
      else
        wrong = bad_request(headers.reason().message);
    } else {
      wrong = std::string_view{action} == "forwardURL" ? read_forward(*what, made)
                                                       : read_response(*what, made);
    }
    if (wrong)
      return bad_request(where + ": " + wrong->message);
    if (const auto* match = json::find(each, "match")) {
      auto read = read_match(*match);
      if (!read)
        return bad_request(where + ": " + read.reason().message);
      made.match = std::move(*read);
    }
    if (std::find(into.domains.begin(), into.domains.end(), *target) == into.domains.end())
      into.domains.push_back(*target); // What has a rule is allowed.
    into.rules.push_back(std::move(made));
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
  for (auto [name, subnets, to] : {std::tuple{"allowedDomains", false, &into.domains},
                                   std::tuple{"allowedCIDRs", true, &into.allowed},
                                   std::tuple{"deniedCIDRs", true, &into.denied}})
    if (auto wrong = add_targets(json::find(given, name), subnets, name, *to))
      return wrong;
  for (const auto& [list, action] :
       {std::pair{"injectionRules", "headers"}, std::pair{"forwardRules", "forwardURL"},
        std::pair{"responseRules", "response"}})
    if (auto wrong = add_rules(given, list, action, into))
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
  if (const auto ok = check(into.rules); !ok)
    return bad_request("networkPolicy: " + ok.reason().message);
  return std::nullopt;
}

std::optional<refusal> seal(network_wish& wish, const secret_box* with) {
  if (wish.rules.empty() || !wish.sealed.empty())
    return std::nullopt;
  if (with == nullptr)
    return bad_request("networkPolicy: this server keeps no secrets, so there are no rules about "
                       "requests");
  auto sealed = seal_rules(*with, wish.rules);
  if (!sealed)
    return bad_request("networkPolicy: " + sealed.reason().message);
  wish.sealed = std::move(*sealed);
  wish.rules = without_values(std::move(wish.rules));
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

namespace {

void write_members(json::ascii_writer& out, const network_wish& wish) {
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
}

void write_action(json::ascii_writer& out, const transform_action& action) {
  write_header_names(out, action.headers);
}
void write_action(json::ascii_writer& out, const forward_action& action) {
  out.member("forwardURL", action.url);
}
void write_action(json::ascii_writer& out, const respond_action& action) {
  out.member("statusCode", action.status);
  write_header_names(out, action.headers);
}

/// The member, of the rules with that action; it is left out if there is none.
template <class Action>
void write_rules_with(json::ascii_writer& out, const char* name,
                      const std::vector<request_rule>& rules) {
  bool any = false;
  for (const auto& each : rules)
    if (const auto* action = std::get_if<Action>(&each.action)) {
      if (!std::exchange(any, true))
        out.key(name).begin_array();
      out.begin_object().member("domain", each.domain);
      write_action(out, *action);
      write_match_member(out, each.match);
      out.end_object();
    }
  if (any)
    out.end_array();
}

} // namespace

void write_policy(json::ascii_writer& out, const network_wish& wish) {
  out.begin_object();
  write_members(out, wish);
  write_rules_with<transform_action>(out, "injectionRules", wish.rules);
  write_rules_with<forward_action>(out, "forwardRules", wish.rules);
  // Clients of this API have no place for these, and leave them.
  write_rules_with<respond_action>(out, "responseRules", wish.rules);
  out.end_object();
}

void write_reach(json::ascii_writer& out, const network_wish& wish) {
  out.begin_object();
  write_members(out, wish);
  out.end_object();
}

} // namespace insula::http::vercel

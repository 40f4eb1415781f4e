#include "http/opensandbox/policy_json.hpp"

#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/sandboxes/policy_json.hpp"

namespace insula::http::opensandbox {

namespace {

const error no_json{errc::invalid_request, "Invalid JSON body"};

class body_reader : policy_reader {
public:
  result<egress_policy> read(const value& body) {
    policy_.allow_rest = false;
    if (body.IsNull())
      return policy_;
    if (!body.IsObject())
      return json::wrong("the body must be a JSON object");
    if (knows(body, {"defaultAction", "egress"})) {
      if (const auto* rest = json::find(body, "defaultAction"); rest != nullptr && !rest->IsNull())
        policy_.allow_rest = read_action(rest, "defaultAction").value_or(false);
      if (const auto* rules = json::find(body, "egress"); rules != nullptr && !rules->IsNull())
        add_rules(*rules, "egress");
    }
    return finish();
  }
  result<egress_policy> read_rule_list(const value& rules) {
    add_rules(rules, "the body");
    return finish();
  }
};

} // namespace

result<egress_policy> read_policy(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == body.npos)
    return egress_policy::deny_all();
  json::document parsed;
  if (!json::parse(body, parsed))
    return no_json;
  return body_reader{}.read(parsed);
}

result<egress_policy> read_policy(const json::value& body) {
  return body_reader{}.read(body);
}

result<std::vector<egress_rule>> read_rules(std::string_view body) {
  json::document parsed;
  if (!json::parse(body, parsed))
    return no_json;
  auto read = body_reader{}.read_rule_list(parsed);
  if (!read)
    return read.reason();
  if (read->rules.empty())
    return json::wrong("at least one rule is needed");
  return std::move(read->rules);
}

result<std::vector<std::string>> read_targets(std::string_view body) {
  json::document parsed;
  if (!json::parse(body, parsed))
    return no_json;
  if (!parsed.IsArray())
    return json::wrong("the body must be an array of targets");
  std::vector<std::string> targets;
  for (const auto& each : parsed.GetArray()) {
    if (!each.IsString())
      return json::wrong("a target must be a string");
    if (auto normal = normalise_target(json::text_of(each))) // Else no rule has it.
      targets.push_back(std::move(*normal));
  }
  return targets;
}

std::string write_policy(const egress_policy& policy) {
  json::writer out;
  out.begin_object();
  out.member("status", "ok");
  out.member("mode", !policy.rules.empty() ? "enforcing"
                     : policy.allow_rest   ? "allow_all"
                                           : "deny_all");
  out.member("enforcementMode", "dns+nft");
  out.key("policy");
  out.begin_object();
  write_rules(out, "egress", policy.rules);
  out.member("defaultAction", policy.allow_rest ? "allow" : "deny");
  out.end_object();
  out.end_object();
  return out.str();
}

} // namespace insula::http::opensandbox

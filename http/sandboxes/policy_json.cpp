#include "http/sandboxes/policy_json.hpp"

#include <algorithm>
#include <utility>

namespace insula::http {

std::optional<error> only(const json::value& object, std::initializer_list<std::string_view> known,
                          const std::string& where) {
  for (const auto& each : object.GetObject()) {
    const auto name = json::text_of(each.name);
    if (std::find(known.begin(), known.end(), name) == known.end())
      return json::wrong("unknown member \"" + std::string{name} + "\"" + where);
  }
  return std::nullopt;
}

result<egress_policy> policy_reader::finish() {
  if (why_)
    return *why_;
  return std::move(policy_);
}

bool policy_reader::fail(error why) {
  if (!why_)
    why_ = std::move(why);
  return false;
}

bool policy_reader::knows(const value& object, std::initializer_list<std::string_view> known,
                          const std::string& where) {
  auto other = only(object, known, where);
  return !other || fail(std::move(*other));
}

void policy_reader::add(bool allow, const value& target, const std::string& where) {
  if (!target.IsString())
    return void(fail(json::wrong(where + " must be a string")));
  auto normal = normalise_target(json::text_of(target));
  if (!normal)
    return void(fail(normal.reason()));
  if (policy_.rules.size() >= max_egress_rules)
    return void(fail({errc::limit_reached,
                      "a policy has at most " + std::to_string(max_egress_rules) + " rules"}));
  policy_.rules.push_back({allow, std::move(*normal)});
}

void policy_reader::read_flag(const value& body, const char* name, bool& into) {
  const auto* given = json::find(body, name);
  if (given == nullptr)
    return;
  if (!given->IsBool())
    return void(fail(json::wrong(std::string{name} + " must be true or false")));
  into = given->GetBool();
}

std::optional<bool> policy_reader::read_action(const value* given, const char* name) {
  const auto said =
    given != nullptr && given->IsString() ? json::text_of(*given) : std::string_view{};
  if (said == "allow" || said == "deny")
    return said == "allow";
  fail(json::wrong(std::string{name} + " must be \"allow\" or \"deny\""));
  return std::nullopt;
}

void policy_reader::add_rules(const value& rules, const char* name) {
  if (!rules.IsArray())
    return void(fail(json::wrong(std::string{name} + " must be an array")));
  for (const auto& each : rules.GetArray()) {
    if (why_)
      return;
    if (!each.IsObject())
      return void(fail(json::wrong("a rule must be an object")));
    const auto* target = json::find(each, "target");
    const auto action = read_action(json::find(each, "action"), "action");
    if (target == nullptr)
      return void(fail(json::wrong("a rule needs a target")));
    if (action && knows(each, {"action", "target"}, " in a rule"))
      add(*action, *target, "target");
  }
}

void write_rules(json::writer& out, const char* name, const std::vector<egress_rule>& rules) {
  out.key(name);
  out.begin_array();
  for (const auto& each : rules) {
    out.begin_object();
    out.member("action", each.allow ? "allow" : "deny");
    out.member("target", each.target);
    out.end_object();
  }
  out.end_array();
}

} // namespace insula::http

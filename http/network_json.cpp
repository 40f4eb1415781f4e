#include "http/network_json.hpp"

#include "http/utf8.hpp"

#include <rapidjson/document.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <initializer_list>
#include <optional>

namespace insula::http::json {

namespace {

using value = rapidjson::Value;
using writer = rapidjson::Writer<rapidjson::StringBuffer>;

error wrong(std::string why) {
  return {errc::invalid_request, std::move(why)};
}

std::string_view text_of(const value& from) {
  return {from.GetString(), from.GetStringLength()};
}

/// A member by its name; null: there is none.
const value* find(const value& object, const char* name) {
  const auto at = object.FindMember(name);
  return at == object.MemberEnd() ? nullptr : &at->value;
}

/// Nothing, if it has no other members than these.
std::optional<error> only(const value& object, std::initializer_list<std::string_view> known,
                          const std::string& where) {
  for (const auto& each : object.GetObject()) {
    const auto name = text_of(each.name);
    if (std::find(known.begin(), known.end(), name) == known.end())
      return wrong("unknown member \"" + std::string{name} + "\"" + where);
  }
  return std::nullopt;
}

/// Reads the parts of one body, until the first thing that is wrong.
class policy_reader {
public:
  result<egress_policy> read(const value& body) {
    if (!body.IsObject())
      return wrong("the body must be a JSON object");
    if (find(body, "mode") != nullptr)
      read_mode(body);
    else if (find(body, "default") != nullptr || find(body, "rules") != nullptr)
      read_rules(body);
    else
      read_lists(body);
    if (why_)
      return *why_;
    return std::move(policy_);
  }

private:
  /// Of several errors the first is told.
  bool fail(error why) {
    if (!why_)
      why_ = std::move(why);
    return false;
  }
  bool knows(const value& object, std::initializer_list<std::string_view> known,
             const std::string& where = {}) {
    auto other = only(object, known, where);
    return !other || fail(std::move(*other));
  }

  void add(bool allow, const value& target, const std::string& where) {
    if (!target.IsString())
      return void(fail(wrong(where + " must be a string")));
    auto normal = normalise_target(text_of(target));
    if (!normal)
      return void(fail(normal.reason()));
    if (policy_.rules.size() >= max_egress_rules)
      return void(fail({errc::limit_reached,
                        "a policy has at most " + std::to_string(max_egress_rules) + " rules"}));
    policy_.rules.push_back({allow, std::move(*normal)});
  }

  void read_flag(const value& body, const char* name, bool& into) {
    const auto* given = find(body, name);
    if (given == nullptr)
      return;
    if (!given->IsBool())
      return void(fail(wrong(std::string{name} + " must be true or false")));
    into = given->GetBool();
  }

  /// True: "allow".
  std::optional<bool> read_action(const value* given, const char* name) {
    const auto said = given != nullptr && given->IsString() ? text_of(*given) : std::string_view{};
    if (said == "allow" || said == "deny")
      return said == "allow";
    fail(wrong(std::string{name} + " must be \"allow\" or \"deny\""));
    return std::nullopt;
  }

  void read_mode(const value& body) {
    const auto& mode = *find(body, "mode");
    const auto said = mode.IsString() ? text_of(mode) : std::string_view{};
    if (said == "custom")
      return void(knows(body, {"mode", "default", "rules", "dry_run", "match_host"}) &&
                  (read_rules(body, true), true));
    if (said != "allow-all" && said != "deny-all")
      return void(fail(wrong("mode must be \"allow-all\", \"deny-all\" or \"custom\"")));
    policy_.allow_rest = said == "allow-all";
    // What this API answers can be sent back as it is.
    if (!knows(body, {"mode", "default", "rules", "dry_run", "match_host"}))
      return;
    const auto* rules = find(body, "rules");
    if (rules != nullptr && (!rules->IsArray() || !rules->Empty()))
      return void(fail(wrong("mode \"" + std::string{said} + "\" has no rules")));
    read_flag(body, "dry_run", policy_.dry_run);
    read_flag(body, "match_host", policy_.match_host);
  }

  void read_rules(const value& body, bool with_mode = false) {
    if (!with_mode && !knows(body, {"default", "rules", "dry_run", "match_host"}))
      return;
    const auto rest = read_action(find(body, "default"), "default");
    if (!rest)
      return;
    policy_.allow_rest = *rest;
    read_flag(body, "dry_run", policy_.dry_run);
    read_flag(body, "match_host", policy_.match_host);
    const auto* rules = find(body, "rules");
    if (rules == nullptr)
      return;
    if (!rules->IsArray())
      return void(fail(wrong("rules must be an array")));
    for (const auto& each : rules->GetArray()) {
      if (why_)
        return;
      if (!each.IsObject())
        return void(fail(wrong("a rule must be an object")));
      const auto* target = find(each, "target");
      const auto action = read_action(find(each, "action"), "action");
      if (target == nullptr)
        return void(fail(wrong("a rule needs a target")));
      if (action && knows(each, {"action", "target"}, " in a rule"))
        add(*action, *target, "target");
    }
  }

  void read_list(const value* list, bool allow, const char* name) {
    if (list == nullptr)
      return;
    if (!list->IsArray())
      return void(fail(wrong(std::string{name} + " must be an array")));
    for (const auto& each : list->GetArray())
      if (!why_)
        add(allow, each, std::string{name} + "'s elements");
  }

  void read_lists(const value& body) {
    policy_.allow_rest = false;
    policy_.match_host = false;
    if (!knows(body, {"allow", "subnets", "dry_run"}))
      return;
    read_flag(body, "dry_run", policy_.dry_run);
    if (const auto* subnets = find(body, "subnets")) {
      if (!subnets->IsObject())
        return void(fail(wrong("subnets must be an object")));
      if (!knows(*subnets, {"allow", "deny"}, " in subnets"))
        return;
      read_list(find(*subnets, "deny"), false, "subnets.deny");
      read_list(find(*subnets, "allow"), true, "subnets.allow");
      for (const auto& each : policy_.rules)
        if (!is_subnet(each.target))
          return void(fail(wrong("\"" + each.target + "\" is no address or subnet")));
    }
    const auto* allow = find(body, "allow");
    if (allow == nullptr || allow->IsArray())
      return read_list(allow, true, "allow");
    if (!allow->IsObject())
      return void(fail(wrong("allow must be an array or an object")));
    for (const auto& each : allow->GetObject()) {
      if (!each.value.IsArray() || !each.value.Empty())
        return void(fail(wrong("rules for the domain \"" + std::string{text_of(each.name)} +
                               "\" are not supported")));
      if (!why_)
        add(true, each.name, "allow's names");
    }
  }

  egress_policy policy_;
  std::optional<error> why_;
};

void text(writer& out, std::string_view name, std::string_view given) {
  out.Key(name.data(), static_cast<rapidjson::SizeType>(name.size()));
  const auto clean = to_utf8(given);
  out.String(clean.data(), static_cast<rapidjson::SizeType>(clean.size()));
}

void number(writer& out, const char* name, std::uint64_t given) {
  out.Key(name);
  out.Uint64(given);
}

/// 2026-01-31T12:00:00.000Z
std::string iso_time(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> day{}, whole{};
  std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(whole.data(), whole.size(), "%s.%03dZ", day.data(),
                static_cast<int>(unix_ms % 1000));
  return whole.data();
}

void write_policy(writer& out, const egress_policy& policy) {
  out.StartObject();
  text(out, "mode",
       !policy.rules.empty() ? "custom"
       : policy.allow_rest   ? "allow-all"
                             : "deny-all");
  text(out, "default", policy.allow_rest ? "allow" : "deny");
  out.Key("rules");
  out.StartArray();
  for (const auto& each : policy.rules) {
    out.StartObject();
    text(out, "action", each.allow ? "allow" : "deny");
    text(out, "target", each.target);
    out.EndObject();
  }
  out.EndArray();
  out.Key("dry_run");
  out.Bool(policy.dry_run);
  out.Key("match_host");
  out.Bool(policy.match_host);
  out.EndObject();
}

void write_figures(writer& out, const network_figures& figures) {
  out.StartObject();
  number(out, "bytes_in", figures.bytes_in);
  number(out, "bytes_out", figures.bytes_out);
  number(out, "connections", figures.connections);
  number(out, "open_connections", figures.open_connections);
  number(out, "refusals", figures.refusals);
  out.Key("last_refusals");
  out.StartArray();
  for (const auto& each : figures.last_refusals) {
    out.StartObject();
    text(out, "at", iso_time(each.at_ms));
    text(out, "protocol", each.protocol);
    text(out, "name", each.name);
    text(out, "address", each.address);
    number(out, "port", each.port);
    text(out, "rule", each.rule);
    out.Key("let_through");
    out.Bool(each.let_through);
    out.EndObject();
  }
  out.EndArray();
  out.EndObject();
}

} // namespace

result<egress_policy> read_network_policy(std::string_view body) {
  rapidjson::Document parsed;
  parsed.Parse<rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag>(body.data(),
                                                                                       body.size());
  if (parsed.HasParseError())
    return wrong("Invalid JSON body");
  return policy_reader{}.read(parsed);
}

std::string write_network(const network_state& state) {
  rapidjson::StringBuffer buffer;
  writer out{buffer};
  out.StartObject();
  out.Key("policy");
  write_policy(out, state.policy);
  out.Key("running");
  out.Bool(state.running);
  out.Key("figures");
  state.running ? write_figures(out, state.figures) : void(out.Null());
  out.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

std::string write_ports(const std::vector<listening_port>& ports) {
  rapidjson::StringBuffer buffer;
  writer out{buffer};
  out.StartObject();
  out.Key("ports");
  out.StartArray();
  for (const auto& each : ports) {
    out.StartObject();
    number(out, "port", each.port);
    text(out, "address", each.address);
    if (each.pid != 0)
      number(out, "pid", static_cast<std::uint64_t>(each.pid));
    if (!each.process.empty())
      text(out, "process", each.process);
    out.EndObject();
  }
  out.EndArray();
  out.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

} // namespace insula::http::json

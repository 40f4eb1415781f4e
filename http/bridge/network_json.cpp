#include "http/bridge/network_json.hpp"

#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/sandboxes/policy_json.hpp"
#include "http/sandboxes/request_rules_json.hpp"
#include "http/text/iso_time.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>

namespace insula::http::json {

namespace {

const error no_json{errc::invalid_request, "Invalid JSON body"};

/// Reads the parts of one body, until the first thing that is wrong.
class bridge_policy_reader : policy_reader {
public:
  result<network_body> read(const value& body) {
    if (!body.IsObject())
      return wrong("the body must be a JSON object");
    if (find(body, "mode") != nullptr)
      read_mode(body);
    else if (find(body, "default") != nullptr || find(body, "rules") != nullptr)
      read_rules(body);
    else
      read_lists(body);
    auto policy = finish();
    if (!policy)
      return policy.reason();
    if (auto ok = check(requests_); !ok)
      return ok.reason();
    return network_body{std::move(*policy), std::move(requests_)};
  }

private:
  void read_mode(const value& body) {
    const auto& mode = *find(body, "mode");
    const auto said = mode.IsString() ? text_of(mode) : std::string_view{};
    if (said == "custom")
      return read_rules(body);
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

  void read_rules(const value& body) {
    if (!knows(body, {"mode", "default", "rules", "dry_run", "match_host"}))
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
    for (const auto& each : rules->GetArray())
      if (!failed())
        add_rule(each);
  }

  /// An action, a target, and what is done with its requests.
  void add_rule(const value& rule) {
    if (!rule.IsObject())
      return void(fail(wrong("a rule must be an object")));
    const auto* target = find(rule, "target");
    const auto action = read_action(find(rule, "action"), "action");
    if (target == nullptr)
      return void(fail(wrong("a rule needs a target")));
    if (!action || !knows(rule, {"action", "target", "match", "transform", "forward", "respond"},
                          " in a rule"))
      return;
    const auto before = policy_.rules.size();
    add(*action, *target, "target");
    if (failed() || policy_.rules.size() == before)
      return;
    const auto added = policy_.rules.back();
    const bool has_action = find(rule, "transform") != nullptr ||
                            find(rule, "forward") != nullptr || find(rule, "respond") != nullptr;
    if (!has_action && find(rule, "match") == nullptr)
      return;
    if (!added.allow || is_subnet(added.target))
      return void(
        fail(wrong("only a rule that allows a domain has transform, forward or respond")));
    request_rule made{added.target, {}, {}};
    if (auto why = read_request_rule(rule, made))
      return void(fail(std::move(*why)));
    // Of several rules about the requests of a domain one is enough to allow it.
    const auto same = [&](const auto& each) { return each == added; };
    if (std::any_of(policy_.rules.begin(), policy_.rules.end() - 1, same))
      policy_.rules.pop_back();
    requests_.push_back(std::move(made));
  }

  static std::optional<error> read_request_rule(const value& rule, request_rule& into) {
    const auto *transform = find(rule, "transform"), *forward = find(rule, "forward"),
               *respond = find(rule, "respond");
    if ((transform != nullptr) + (forward != nullptr) + (respond != nullptr) != 1)
      return wrong("a rule with a match has one of transform, forward and respond");
    if (const auto* match = find(rule, "match")) {
      auto read = read_match(*match);
      if (!read)
        return read.reason();
      into.match = std::move(*read);
    }
    if (transform != nullptr) {
      const auto* headers = transform->IsObject() ? find(*transform, "headers") : nullptr;
      if (headers == nullptr)
        return wrong("transform must be an object with headers");
      if (auto unknown = only(*transform, {"headers"}, " in transform"))
        return unknown;
      auto all = read_headers(*headers);
      if (!all)
        return all.reason();
      into.action = transform_action{std::move(*all)};
    } else if (forward != nullptr) {
      if (!forward->IsString())
        return wrong("forward must be a string");
      auto url = normalise_forward_url(text_of(*forward));
      if (!url)
        return error{url.reason().code, "forward: " + url.reason().message};
      into.action = forward_action{std::move(*url)};
    } else {
      return read_respond(*respond, into);
    }
    return std::nullopt;
  }

  static std::optional<error> read_respond(const value& given, request_rule& into) {
    if (!given.IsObject())
      return wrong("respond must be an object");
    if (auto unknown = only(given, {"status", "headers", "body"}, " in respond"))
      return unknown;
    respond_action made;
    const auto *status = find(given, "status"), *body = find(given, "body"),
               *headers = find(given, "headers");
    if (status != nullptr && !status->IsUint())
      return wrong("respond.status must be 200 to 599");
    made.status = status == nullptr ? 200 : status->GetUint();
    if (body != nullptr && !body->IsString())
      return wrong("respond.body must be a string");
    if (body != nullptr)
      made.body = string_of(*body);
    if (headers != nullptr) {
      auto all = read_headers(*headers);
      if (!all)
        return all.reason();
      made.headers = std::move(*all);
    }
    into.action = std::move(made);
    return std::nullopt;
  }

  std::vector<request_rule> requests_;

  void read_list(const value* list, bool allow, const char* name) {
    if (list == nullptr)
      return;
    if (!list->IsArray())
      return void(fail(wrong(std::string{name} + " must be an array")));
    for (const auto& each : list->GetArray())
      if (!failed())
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
      if (!failed())
        add(true, each.name, "allow's names");
    }
  }
};

void write_action(writer& out, const transform_action& action) {
  write_header_names(out.key("transform").begin_object(), action.headers);
  out.end_object();
}
void write_action(writer& out, const forward_action& action) {
  out.member("forward", action.url);
}
void write_action(writer& out, const respond_action& action) {
  out.key("respond").begin_object().member("status", action.status);
  write_header_names(out, action.headers);
  out.end_object();
}

void write_request_rule(writer& out, const request_rule& rule) {
  out.begin_object().member("action", "allow").member("target", rule.domain);
  write_match_member(out, rule.match);
  std::visit([&](const auto& action) { write_action(out, action); }, rule.action);
  out.end_object();
}

/// The rules about requests stand in the place of the one that allows their domain.
void write_all_rules(writer& out, const egress_policy& policy,
                     const std::vector<request_rule>& requests) {
  out.key("rules").begin_array();
  std::vector<bool> written(requests.size());
  for (const auto& each : policy.rules) {
    bool any = false;
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (each.allow && requests[i].domain == each.target && !written[i]) {
        any = written[i] = true;
        write_request_rule(out, requests[i]);
      }
    if (any)
      continue;
    out.begin_object().member("action", each.allow ? "allow" : "deny");
    out.member("target", each.target).end_object();
  }
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (!written[i] && policy.allow_rest) // Else its domain is not allowed any more.
      write_request_rule(out, requests[i]);
  out.end_array();
}

void write_policy(writer& out, const egress_policy& policy,
                  const std::vector<request_rule>& requests) {
  out.begin_object();
  out.member("mode", !policy.rules.empty() || !requests.empty() ? "custom"
                     : policy.allow_rest                        ? "allow-all"
                                                                : "deny-all");
  out.member("default", policy.allow_rest ? "allow" : "deny");
  write_all_rules(out, policy, requests);
  out.member("dry_run", policy.dry_run);
  out.member("match_host", policy.match_host);
  out.end_object();
}

/// When it was, and where to: what a refusal and a failure have alike.
template <class Event>
void write_place(writer& out, const Event& each) {
  out.member("at", iso_time(each.at_ms));
  out.member("protocol", each.protocol);
  out.member("name", each.name);
  out.member("address", each.address);
  out.member("port", each.port);
}

void write_figures(writer& out, const network_state& state) {
  const auto& figures = state.figures;
  out.begin_object();
  out.member("bytes_in", figures.bytes_in);
  out.member("bytes_out", figures.bytes_out);
  out.member("connections", figures.connections);
  out.member("open_connections", figures.open_connections);
  out.member("refusals", figures.refusals);
  out.member("gateway_ms", figures.gateway_us / 1000);
  out.key("last_refusals");
  out.begin_array();
  for (const auto& each : figures.last_refusals) {
    out.begin_object();
    write_place(out, each);
    out.member("rule", each.rule);
    out.member("let_through", each.let_through);
    out.end_object();
  }
  out.end_array();
  out.key("request_rules").begin_array(); // In their order; none while the broker is away.
  for (std::size_t i = 0; i < std::min(figures.rules.size(), state.requests.size()); ++i) {
    const auto& each = figures.rules[i];
    out.begin_object().member("target", state.requests[i].domain);
    out.member("requests", each.requests);
    out.member("bytes_in", each.bytes_in);
    out.member("bytes_out", each.bytes_out);
    out.key("last_status");
    each.last_status == 0 ? out.null() : out.integer(each.last_status);
    out.end_object();
  }
  out.end_array();
  out.member("failures", figures.failures);
  out.key("last_failures");
  out.begin_array();
  for (const auto& each : figures.last_failures) {
    out.begin_object();
    write_place(out, each);
    out.member("reason", to_text(each.reason));
    out.end_object();
  }
  out.end_array();
  out.end_object();
}

} // namespace

result<network_body> read_network_body(std::string_view body) {
  document parsed;
  if (!parse(body, parsed))
    return no_json;
  return bridge_policy_reader{}.read(parsed);
}

std::string write_network(const network_state& state) {
  writer out;
  out.begin_object();
  out.key("policy");
  write_policy(out, state.policy, state.requests);
  out.member("running", state.running);
  out.key("figures");
  state.running ? write_figures(out, state) : void(out.null());
  out.end_object();
  return out.str();
}

result<preview_body> read_preview_body(std::string_view body) {
  constexpr std::uint64_t most_ports = 65'535, longest_s = 30 * 24 * 3600;
  document parsed;
  if (!parse(body, parsed))
    return no_json;
  if (!parsed.IsObject())
    return wrong("the body must be a JSON object");
  if (auto other = only(parsed, {"port", "expires_in_s"}, ""))
    return *other;
  preview_body read;
  const auto* port = find(parsed, "port");
  if (port == nullptr || !port->IsUint64() || port->GetUint64() < 1 ||
      port->GetUint64() > most_ports)
    return wrong("port must be a number from 1 to 65535");
  read.port = static_cast<std::uint16_t>(port->GetUint64());
  if (const auto* time = find(parsed, "expires_in_s")) {
    if (!time->IsUint64() || time->GetUint64() < 1 || time->GetUint64() > longest_s)
      return wrong("expires_in_s must be a number from 1 to 2592000");
    read.expires_in_s = static_cast<std::uint32_t>(time->GetUint64());
  }
  return read;
}

std::string write_preview_link(std::uint16_t port, const port_link& link) {
  writer out;
  out.begin_object();
  out.member("port", port);
  if (link.url.empty()) {
    out.member("url", nullptr);
  } else {
    out.member("url", link.url);
  }
  out.member("path", link.path);
  if (link.token) {
    out.member("token", *link.token);
    out.member("expires_at", iso_time(link.expires_at_s * 1000));
  } else {
    out.member("token", nullptr);
    out.member("expires_at", nullptr);
  }
  out.end_object();
  return out.str();
}

std::string write_port_ready(std::uint64_t waited_ms) {
  writer out;
  out.begin_object();
  out.member("ready", true);
  out.member("waited_ms", waited_ms);
  out.end_object();
  return out.str();
}

std::string write_ports(const std::vector<listening_port>& ports) {
  writer out;
  out.begin_object();
  out.key("ports");
  out.begin_array();
  for (const auto& each : ports) {
    out.begin_object();
    out.member("port", each.port);
    out.member("address", each.address);
    if (each.pid != 0)
      out.member("pid", static_cast<std::uint64_t>(each.pid));
    if (!each.process.empty())
      out.member("process", each.process);
    out.end_object();
  }
  out.end_array();
  out.end_object();
  return out.str();
}

} // namespace insula::http::json

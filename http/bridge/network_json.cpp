#include "http/bridge/network_json.hpp"

#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/sandboxes/policy_json.hpp"
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
  result<egress_policy> read(const value& body) {
    if (!body.IsObject())
      return wrong("the body must be a JSON object");
    if (find(body, "mode") != nullptr)
      read_mode(body);
    else if (find(body, "default") != nullptr || find(body, "rules") != nullptr)
      read_rules(body);
    else
      read_lists(body);
    return finish();
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
    add_rules(*rules, "rules");
  }

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

void write_policy(writer& out, const egress_policy& policy) {
  out.begin_object();
  out.member("mode", !policy.rules.empty() ? "custom"
                     : policy.allow_rest   ? "allow-all"
                                           : "deny-all");
  out.member("default", policy.allow_rest ? "allow" : "deny");
  write_rules(out, "rules", policy.rules);
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

void write_figures(writer& out, const network_figures& figures) {
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

result<egress_policy> read_network_policy(std::string_view body) {
  document parsed;
  if (!parse(body, parsed))
    return no_json;
  return bridge_policy_reader{}.read(parsed);
}

std::string write_network(const network_state& state) {
  writer out;
  out.begin_object();
  out.key("policy");
  write_policy(out, state.policy);
  out.member("running", state.running);
  out.key("figures");
  state.running ? write_figures(out, state.figures) : void(out.null());
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

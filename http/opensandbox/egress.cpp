#include "base/id.hpp"
#include "http/opensandbox/access.hpp"
#include "http/opensandbox/api.hpp"
#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/policy_json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"

#include <chrono>
#include <string>

namespace insula::http::opensandbox {

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 30s;

/// Errors are plain text here, but for a sandbox that is not there: that is said in front of it.
response plain(int status, std::string_view why) {
  return {status, std::string{why}, "text/plain"};
}

response failed(const error& why) {
  switch (why.code) {
    case errc::invalid_request: return plain(400, why.message);
    case errc::not_found: return execd_failure(404, "DOCKER::SANDBOX_NOT_FOUND", why.message);
    case errc::payload_too_large:
    case errc::limit_reached: return plain(413, why.message);
    case errc::disk_full: return plain(507, "the node's disk is full, so nothing was done");
    default: return plain(502, why.code == errc::internal ? "internal error" : why.message);
  }
}

response too_large(std::uint64_t, std::uint64_t limit) {
  return plain(413, "the body exceeds " + std::to_string(limit) + " bytes");
}

/// Asks the sandbox without starting it. `answered` comes on a CAF worker.
template <class Message>
void ask(const services& with, const std::string& id, Message wanted, const reply& to,
         std::function<void(const network_state&)> answered) {
  question{with, id, std::move(wanted), to}
    .within(patience, plain(504, "the sandbox did not answer in time"))
    .starts(false)
    .or_else(failed)
    .template then<network_state>(std::move(answered));
}

void tell(const reply& to, const network_state& state) {
  to->respond({200, write_policy(state.policy)});
}

void read(const services& with, const std::string& id, const reply& to) {
  ask(with, id, get_network_request{}, to, [to, id](const network_state& state) {
    state.exists ? tell(to, state) : to->respond(unknown_sandbox(id));
  });
}

/// Of one that is there.
template <class Message>
void write(const std::shared_ptr<const services>& with, const std::string& id, Message wanted,
           const reply& to) {
  ask(*with, id, get_network_request{}, to, [=](const network_state& state) {
    if (!state.exists)
      return to->respond(unknown_sandbox(id));
    ask(*with, id, wanted, to, [to](const network_state& now) { tell(to, now); });
  });
}

void replace(const shared_services& with, const std::string& id, const std::string& body,
             const reply& to) {
  auto policy = read_policy(body);
  if (!policy)
    return to->respond(failed(policy.reason()));
  write(with, id, set_network_request{std::move(*policy)}, to);
}

void merge(const shared_services& with, const std::string& id, const std::string& body,
           const reply& to) {
  auto rules = read_rules(body);
  if (!rules)
    return to->respond(failed(rules.reason()));
  write(with, id, change_network_request{std::move(*rules), {}}, to);
}

void remove(const shared_services& with, const std::string& id, const std::string& body,
            const reply& to) {
  auto targets = read_targets(body);
  if (!targets)
    return to->respond(failed(targets.reason()));
  write(with, id, change_network_request{{}, std::move(*targets)}, to);
}

using handler = void (*)(const shared_services&, const std::string&, const std::string&,
                         const reply&);

constexpr std::string_view tag = "OpenSandbox: network policy";

route policy_route(verb method, const std::string& pattern, const shared_services& with,
                   handler what, operation document) {
  document.tag = tag;
  document.needs_disk = false;
  document.answers = {{"200", "What holds now.", "application/json", "OpenSandboxPolicyStatus"},
                      {"404", "", "", "SandboxNotFound"},
                      {"502", "The egress gateway does not answer.", "text/plain", ""},
                      {"504", "The sandbox did not answer in time.", "text/plain", ""}};
  if (what != nullptr) {
    document.answers.push_back({"400", "The body is wrong.", "text/plain", ""});
    document.answers.push_back({"413", "More than 4,096 rules.", "text/plain", ""});
    document.answers.push_back({"507", "The node's disk is full.", "text/plain", ""});
  }
  return {method,
          pattern,
          access::key,
          what == nullptr ? body_use::ignored : body_use::buffered,
          what == nullptr ? 0 : limits::network_body_bytes,
          [with, what](const matched_request& asked) {
            admission plan;
            if (!sandbox_id::parse(asked.id()))
              plan.refusal = unknown_sandbox(asked.id());
            else
              plan.answer = [with, what, id = asked.id()](const std::string& body,
                                                          const reply& to) {
                what == nullptr ? read(*with, id, to) : what(with, id, body, to);
              };
            return plan;
          },
          std::move(document),
          &too_large,
          nullptr,
          [](const request_path& asked) { return unknown_sandbox(asked.id()); }};
}

} // namespace

std::vector<route> egress_routes(const shared_services& with, const std::string& prefix) {
  std::vector<route> table;
  const auto below = prefix + "/sandboxes/:id/proxy/" + std::to_string(egress_port);
  const auto policy = below + "/policy";
  table.push_back(policy_route(
    verb::get, policy, with, nullptr,
    {.id = "getEgressPolicy", .summary = "What the sandbox may reach. Starts nothing."}));
  for (const auto& [method, name] :
       {std::pair{verb::put, "setEgressPolicy"}, std::pair{verb::post, "replaceEgressPolicy"}})
    table.push_back(policy_route(method, policy, with, &replace,
                                 {.id = name,
                                  .summary = "Say what the sandbox may reach; without a body, "
                                             "nothing.",
                                  .body_type = "application/json",
                                  .body_schema = "OpenSandboxPolicy",
                                  .body_optional = true}));
  table.push_back(policy_route(verb::patch, policy, with, &merge,
                               {.id = "addEgressRules",
                                .summary = "Rules in front of those that there are; one with the "
                                           "same target goes.",
                                .body_type = "application/json",
                                .body_schema = "OpenSandboxRules"}));
  table.push_back(policy_route(verb::del, policy, with, &remove,
                               {.id = "removeEgressRules",
                                .summary = "Take away the rules for these targets.",
                                .body_type = "application/json",
                                .body_schema = "OpenSandboxTargets"}));
  table.push_back({verb::get,
                   below + "/healthz",
                   access::key,
                   body_use::ignored,
                   0,
                   [](const matched_request&) {
                     return answered_by(
                       [](const std::string&, const reply& to) { to->respond(plain(200, "ok")); });
                   },
                   {.id = "getEgressHealth",
                    .summary = "Whether policies can be asked for.",
                    .answers = {{"200", "They can.", "text/plain", ""}},
                    .tag = tag,
                    .needs_disk = false},
                   nullptr,
                   nullptr,
                   [](const request_path&) { return plain(200, "ok"); }});
  return table;
}

} // namespace insula::http::opensandbox

#include "base/id.hpp"
#include "http/bridge/ask_sandbox.hpp"
#include "http/network_json.hpp"
#include "http/opensandbox/api.hpp"
#include "http/opensandbox/execd.hpp"
#include "http/opensandbox/lifecycle.hpp"

#include <chrono>
#include <string>

namespace insula::http::opensandbox {

namespace {

using bridge::services;
using namespace std::chrono_literals;

constexpr auto patience = 30s;

/// Errors are plain text here.
response plain(int status, std::string_view why) {
  return {status, std::string{why}, "text/plain"};
}

response failed(const error& why) {
  switch (why.code) {
    case errc::invalid_request: return plain(400, why.message);
    case errc::not_found: return plain(404, why.message);
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
  to->answer_within(patience, plain(504, "the sandbox did not answer in time"));
  wanted.context = to->context();
  bridge::sandbox_question<Message, network_state> question{
    with.directory,
    id,
    std::move(wanted),
    std::move(answered),
    [to](bridge::step, const error& why) { to->respond(failed(why)); },
    bridge::step::network};
  question.starts_it = false;
  bridge::ask_sandbox(with, std::move(question));
}

const error unknown{errc::not_found, "there is no such sandbox"};

void tell(const reply& to, const network_state& state) {
  to->respond({200, json::write_opensandbox_policy(state.policy)});
}

void read(const services& with, const std::string& id, const reply& to) {
  ask(with, id, get_network_request{}, to, [to](const network_state& state) {
    state.exists ? tell(to, state) : to->respond(failed(unknown));
  });
}

/// Of one that is there.
template <class Message>
void write(const std::shared_ptr<const services>& with, const std::string& id, Message wanted,
           const reply& to) {
  ask(*with, id, get_network_request{}, to, [=](const network_state& state) {
    if (!state.exists)
      return to->respond(failed(unknown));
    ask(*with, id, wanted, to, [to](const network_state& now) { tell(to, now); });
  });
}

using shared_services = std::shared_ptr<const services>;

void replace(const shared_services& with, const std::string& id, const std::string& body,
             const reply& to) {
  auto policy = json::read_opensandbox_policy(body);
  if (!policy)
    return to->respond(failed(policy.reason()));
  write(with, id, set_network_request{std::move(*policy)}, to);
}

void merge(const shared_services& with, const std::string& id, const std::string& body,
           const reply& to) {
  auto rules = json::read_opensandbox_rules(body);
  if (!rules)
    return to->respond(failed(rules.reason()));
  write(with, id, change_network_request{std::move(*rules), {}}, to);
}

void remove(const shared_services& with, const std::string& id, const std::string& body,
            const reply& to) {
  auto targets = json::read_opensandbox_targets(body);
  if (!targets)
    return to->respond(failed(targets.reason()));
  write(with, id, change_network_request{{}, std::move(*targets)}, to);
}

using handler = void (*)(const shared_services&, const std::string&, const std::string&,
                         const reply&);

route policy_route(verb method, const std::string& pattern, const shared_services& with,
                   handler what) {
  return {method,
          pattern,
          access::open_sandbox_key,
          what == nullptr ? body_use::ignored : body_use::buffered,
          what == nullptr ? 0 : limits::network_body_bytes,
          [with, what](const call& asked) {
            admission plan;
            if (!sandbox_id::parse(asked.id))
              plan.refusal = failed(unknown);
            else
              plan.answer = [with, what, id = asked.id](const std::string& body, const reply& to) {
                what == nullptr ? read(*with, id, to) : what(with, id, body, to);
              };
            return plan;
          },
          {},
          &too_large,
          nullptr,
          [](const call&) { return failed(unknown); }};
}

} // namespace

std::vector<route> routes(const shared_services& with) {
  std::vector<route> table;
  for (const std::string pattern :
       {"/v1/sandboxes/:id/proxy/18080/policy", "/sandboxes/:id/proxy/18080/policy"}) {
    table.push_back(policy_route(verb::get, pattern, with, nullptr));
    table.push_back(policy_route(verb::put, pattern, with, &replace));
    table.push_back(policy_route(verb::post, pattern, with, &replace));
    table.push_back(policy_route(verb::patch, pattern, with, &merge));
    table.push_back(policy_route(verb::del, pattern, with, &remove));
  }
  for (const std::string pattern :
       {"/v1/sandboxes/:id/proxy/18080/healthz", "/sandboxes/:id/proxy/18080/healthz"})
    table.push_back({verb::get,
                     pattern,
                     access::open_sandbox_key,
                     body_use::ignored,
                     0,
                     [](const call&) {
                       admission plan;
                       plan.answer = [](const std::string&, const reply& to) {
                         to->respond(plain(200, "ok"));
                       };
                       return plan;
                     },
                     {},
                     nullptr,
                     nullptr,
                     [](const call&) { return plain(200, "ok"); }});
  for (const std::string prefix : {"", "/v1"})
    for (auto& each : lifecycle_routes(with, prefix))
      table.push_back(std::move(each));
  for (const std::string prefix : {"/sandboxes/:id/proxy/", "/v1/sandboxes/:id/proxy/"})
    for (auto& each : execd_routes(with, {prefix + std::to_string(execd_port), {}}))
      table.push_back(std::move(each));
  return table;
}

} // namespace insula::http::opensandbox

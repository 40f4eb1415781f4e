#include "base/sealed_rules.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/network_json.hpp"
#include "http/bridge/port_ready.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/text/percent.hpp"

#include <charconv>
#include <chrono>
#include <optional>

namespace insula::http::bridge {

namespace {

using namespace std::chrono_literals;

/// Nothing is started for these, but a policy becomes durable, and holds.
constexpr auto patience = 30s;

/// Asks the sandbox without starting it, and answers with what `write` makes of what it says.
template <class Message, class Answer>
void ask(const services& with, const std::string& id, Message wanted,
         std::string (*write)(const Answer&), const reply& to) {
  question{with, id, std::move(wanted), to}
    .within(patience, overdue(step::network))
    .starts(false)
    .or_else(failing(step::network))
    .template then<Answer>([to, write](const Answer& answer) {
      to->respond({200, write(answer)});
    });
}

void refuse(const error& why, const reply& to) {
  to->respond(why.code == errc::limit_reached
                ? error_response(step::request, {errc::payload_too_large, why.message})
                : error_response(step::request, why));
}

void set(const shared_services& with, const std::string& id, std::string_view body,
         const reply& to) {
  auto wanted = json::read_network_body(body);
  if (!wanted)
    return refuse(wanted.reason(), to);
  const auto go_on = [with, id, to, policy = std::move(wanted->policy)](sealed_rules rules) {
    set_network_request message{policy};
    message.requests = std::move(rules); // Of the policy before there may be some.
    ask<set_network_request, network_state>(*with, id, std::move(message), json::write_network, to);
  };
  if (wanted->requests.empty())
    return go_on({});
  if (!with->secrets)
    return refuse({errc::forbidden, "this server keeps no secrets"}, to);
  // Regular expressions take up to half a second: not for an HTTP thread.
  to->answer_within(patience, overdue(step::network));
  with->workers->post([with, to, go_on, rules = std::move(wanted->requests)] {
    auto sealed = seal_rules(*with->secrets, rules);
    sealed ? go_on(std::move(*sealed)) : refuse(sealed.reason(), to);
  });
}

/// None: it is no number of this range.
std::optional<std::uint64_t> read_number(std::string_view text, std::uint64_t least,
                                         std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = !text.empty() && why == std::errc{} && end == text.data() + text.size();
  return whole && value >= least && value <= most ? std::optional{value} : std::nullopt;
}

admission refused(std::string why) {
  return http::refused(error_response(step::request, {errc::invalid_request, std::move(why)}));
}

constexpr std::uint64_t usual_wait_ms = 30'000;
constexpr std::uint64_t longest_wait_ms = 300'000;

admission admit_wait(const std::shared_ptr<const services>& with, const matched_request& what) {
  const auto port = read_number(what["port"], 1, 65'535);
  if (!port)
    return refused("port must be a number from 1 to 65535");
  const auto text = form_value(what.query, "timeout_ms");
  const auto timeout =
    text.empty() ? std::optional{usual_wait_ms} : read_number(text, 1, longest_wait_ms);
  if (!timeout)
    return refused("timeout_ms must be a number from 1 to 300000");
  return answered_by(
    [with, id = what.id(), port = static_cast<std::uint16_t>(*port),
     timeout = std::chrono::milliseconds{*timeout}](const std::string&, const reply& to) {
      wait_for_port(with, id, port, timeout, to);
    });
}

} // namespace

void add_network_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::get,
     "/v1/sandbox/:id/network",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       return answered_by([with, id = what.id()](const std::string&, const reply& to) {
         ask<get_network_request, network_state>(*with, id, {}, json::write_network, to);
       });
     },
     {.id = "getNetwork",
      .summary = "What the sandbox may reach, what it has had, and what was refused last. Starts "
                 "nothing.",
      .answers = {{"200", "The policy and the figures.", "application/json", "Network"},
                  {"400", "", "", "InvalidRequest"},
                  {"502", "It does not answer.", "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::put,
     "/v1/sandbox/:id/network",
     access::key,
     body_use::buffered,
     limits::network_body_bytes,
     [with](const matched_request& what) {
       return answered_by([with, id = what.id()](const std::string& body, const reply& to) {
         set(with, id, body, to);
       });
     },
     {.id = "setNetwork",
      .summary =
        "Say what the sandbox may reach. Holds at once, or from its start on; what is open "
        "and forbidden from now on is cut. Starts nothing.",
      .body_type = "application/json",
      .body_schema = "NetworkPolicy",
      .answers = {{"200", "It holds, and is remembered.", "application/json", "Network"},
                  {"400", "", "", "InvalidRequest"},
                  {"413", "More than 4,096 rules.", "application/json", "ErrorResponse"},
                  {"502", "It is remembered, and the egress gateway does not answer.",
                   "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::get,
     "/v1/sandbox/:id/ports",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       return answered_by([with, id = what.id()](const std::string&, const reply& to) {
         ask<list_ports_request, std::vector<listening_port>>(*with, id, {}, json::write_ports, to);
       });
     },
     {.id = "listPorts",
      .summary = "What listens for TCP in the sandbox, by port, with the process. Starts nothing.",
      .answers = {{"200", "The ports.", "application/json", "Ports"},
                  {"400", "", "", "InvalidRequest"},
                  {"502", "It does not run.", "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::get,
     "/v1/sandbox/:id/port/:port/ready",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) { return admit_wait(with, what); },
     {.id = "waitForPort",
      .summary =
        "Wait until something in the sandbox accepts connections at a port, on its loopback "
        "too. Starts nothing.",
      .parameters = {{"timeout_ms", "query", "How long, 1 to 300000; 30000 unless given."}},
      .answers = {{"200", "It does.", "application/json", "PortReady"},
                  {"400", "", "", "InvalidRequest"},
                  {"502", "The sandbox does not run.", "application/json", "ErrorResponse"},
                  {"504", "Nothing did in time.", "application/json", "ErrorResponse"}}}});
}

} // namespace insula::http::bridge

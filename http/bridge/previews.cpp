#include "http/api/dispatcher.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/network_json.hpp"
#include "http/opensandbox/execd.hpp"
#include "http/preview/address.hpp"
#include "http/preview/message.hpp"
#include "http/preview/token.hpp"

#include <algorithm>
#include <chrono>

namespace insula::http::bridge {

namespace {

constexpr std::uint64_t body_bytes = 4096;

/// The port that clients have asked this node at, with its colon; empty: the usual one.
std::string_view port_in(std::string_view host) {
  const auto at = host.find_last_of(":]");
  return at == std::string_view::npos || host[at] == ']' ? std::string_view{} : host.substr(at);
}

response describe(const services& with, const std::string& id, const std::string& host,
                  const json::preview_body& wanted) {
  json::preview_link link;
  link.port = wanted.port;
  link.path = preview::prefix_of(id, wanted.port) + "/";
  const auto name = preview::host_of(id, wanted.port, with.preview_domain);
  if (!name.empty())
    link.url = (with.encrypted ? "https://" : "http://") + name + std::string{port_in(host)} + "/";
  if (with.asks_key && !with.previews_public) {
    using namespace std::chrono;
    const auto ends = floor<seconds>(system_clock::now()) + seconds{wanted.expires_in_s};
    link.token = preview::sign_token(with.secret, id, wanted.port, ends);
    link.expires_at_s = ends.time_since_epoch().count();
    const auto query = "?" + std::string{preview::token_parameter} + "=" + *link.token;
    link.path += query;
    if (!link.url.empty())
      link.url += query;
  }
  return {200, json::write_preview_link(link)};
}

/// A token for this port is a token for commands and files.
response refused_execd() {
  return error_response(
    step::request,
    {errc::invalid_request,
     "port " + std::to_string(opensandbox::execd_port) +
       " is execd's: a token for it would run commands; ask for it as OpenSandbox's endpoint"});
}

response no_port(const call&) {
  return error_response(step::request, {errc::invalid_request, "the port must be from 1 to 65535"});
}

} // namespace

void add_preview_routes(std::vector<route>& table, std::shared_ptr<const services> with) {
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/preview",
     access::key,
     body_use::buffered,
     body_bytes,
     [with](const call& what) {
       admission plan;
       plan.answer = [with, id = what.id, host = what.host](const std::string& body,
                                                            const reply& to) {
         const auto wanted = json::read_preview_body(body);
         if (!wanted)
           return to->respond(error_response(step::request, wanted.reason()));
         to->respond(wanted->port == opensandbox::execd_port ? refused_execd()
                                                             : describe(*with, id, host, *wanted));
       };
       return plan;
     },
     {.id = "createPreview",
      .summary = "Where a server in the sandbox can be reached from outside, with a token for who "
                 "has no key. Starts nothing.",
      .body_type = "application/json",
      .body_schema = "PreviewRequest",
      .answers = {{"200", "The addresses.", "application/json", "Preview"},
                  {"400", "", "", "InvalidRequest"}}}});
  // What names a port that there can be goes on to it before there are routes.
  for (const auto method : all_verbs) {
    operation document;
    if (method == verb::get)
      document = {
        .id = "previewPort",
        .summary = "What a server in the sandbox answers at this port, by any method, "
                   "WebSockets included. Starts nothing.",
        .parameters = {{"path", "path", "As the server has it.", true}},
        .answers = {{"200", "The server's answer, whatever its status.", "*/*", ""},
                    {"400", "", "", "InvalidRequest"},
                    {"404", "The sandbox does not run.", "application/json", "ErrorResponse"},
                    {"502", "Nothing listens there.", "application/json", "ErrorResponse"}}};
    table.push_back({method, "/v1/sandbox/:id/port/:port/*", access::key, body_use::ignored, 0,
                     [](const call& what) {
                       admission plan;
                       plan.refusal = no_port(what);
                       return plan;
                     },
                     std::move(document), nullptr, nullptr, no_port});
  }
}

} // namespace insula::http::bridge

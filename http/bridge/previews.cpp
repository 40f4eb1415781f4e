#include "http/bridge/api.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/network_json.hpp"

#include <algorithm>
#include <chrono>

namespace insula::http::bridge {

namespace {

constexpr std::uint64_t body_bytes = 4096;

response describe(const services& with, const std::string& id, const std::string& host,
                  const json::preview_body& wanted) {
  auto found = with.links->link(id, wanted.port, host, std::chrono::seconds{wanted.expires_in_s});
  if (!found)
    return error_response(step::request, found.reason());
  return {200, json::write_preview_link(wanted.port, *found)};
}

response no_port(const request_path&) {
  return error_response(step::request, {errc::invalid_request, "the port must be from 1 to 65535"});
}

} // namespace

void add_preview_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/preview",
     access::key,
     body_use::buffered,
     body_bytes,
     [with](const matched_request& what) {
       return answered_by([with, id = what.id(), host = what.field("Host")](const std::string& body,
                                                                            const reply& to) {
         const auto wanted = json::read_preview_body(body);
         if (!wanted)
           return to->respond(error_response(step::request, wanted.reason()));
         to->respond(describe(*with, id, host, *wanted));
       });
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
                     [](const matched_request& what) { return refused(no_port(what)); },
                     std::move(document), nullptr, nullptr, no_port});
  }
}

} // namespace insula::http::bridge

#include "http/bridge/api.hpp"
#include "http/json.hpp"
#include "http/openapi.hpp"

namespace insula::http::bridge {

namespace {

admission answered_with(response answer) {
  admission plan;
  plan.answer = [answer = std::move(answer)](const std::string&, const reply& to) {
    to->respond(answer);
  };
  return plan;
}

response health(const services& with) {
  const auto missing = with.missing_parts ? with.missing_parts() : std::vector<std::string>{};
  if (missing.empty())
    return {200, json::write_ok()};
  return {503, json::write_missing_parts(missing)};
}

} // namespace

void add_service_routes(std::vector<route>& table, std::shared_ptr<const services> with) {
  table.push_back({verb::get,
                   "/v1/openapi.json",
                   access::key_or_token,
                   body_use::ignored,
                   0,
                   [](const call&) {
                     static const std::string document = openapi_document();
                     return answered_with({200, document});
                   },
                   {.id = "getOpenApiSchema",
                    .summary = "This document.",
                    .parameters = {{"token", "query", "The key, where a header cannot be sent."}},
                    .answers = {{"200", "An OpenAPI 3.1 document.", "application/json", ""}}}});
  table.push_back({verb::get,
                   "/health",
                   access::everybody,
                   body_use::ignored,
                   0,
                   [with](const call&) { return answered_with(health(*with)); },
                   {.id = "healthCheck",
                    .summary = "Whether everything that is needed is there.",
                    .answers = {{"200", "It is.", "application/json", "OkResponse"},
                                {"503", "Something is missing; the answer says what.",
                                 "application/json", "HealthProblems"}}}});
}

} // namespace insula::http::bridge

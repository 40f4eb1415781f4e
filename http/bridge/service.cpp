#include "http/api/openapi_page.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/json/json.hpp"

#include <boost/asio/post.hpp>

#include <mutex>

namespace insula::http::bridge {

namespace {

admission answered_with(response answer) {
  return answered_by(
    [answer = std::move(answer)](const std::string&, const reply& to) { to->respond(answer); });
}

/// The document and the page that shows it: made when first asked for, and kept. Any thread.
class kept_document {
public:
  explicit kept_document(std::function<std::string()> make)
      : make_(std::move(make)) {}

  const std::string& text() {
    std::call_once(text_made_, [this] { text_ = make_(); });
    return text_;
  }
  const embedded_page& page() {
    std::call_once(page_made_, [this] { page_ = make_openapi_page(text()); });
    return page_;
  }

private:
  const std::function<std::string()> make_;
  std::once_flag text_made_, page_made_;
  std::string text_;
  embedded_page page_;
};

response health(const services& with) {
  const auto missing = with.missing_parts ? with.missing_parts() : std::vector<std::string>{};
  if (missing.empty())
    return {200, json::write_ok()};
  return {503, write_missing_parts(missing)};
}

/// Looking at everything takes a moment: not for an HTTP thread.
void write_metrics(const std::shared_ptr<const services>& with, const reply& to) {
  with->workers->post([with, to] {
    metrics::text text;
    with->write_figures(text);
    to->respond({200, text.take(), metrics::text::content_type});
  });
}

} // namespace

route metrics_route(const shared_services& with) {
  route made{
    verb::get,
    "/metrics",
    access::key,
    body_use::ignored,
    0,
    [with](const matched_request&) {
      return answered_by([with](const std::string&, const reply& to) { write_metrics(with, to); });
    },
    {.id = "getMetrics",
     .summary = "What the server counts, for Prometheus.",
     .answers = {{"200", "The text exposition format, version 0.0.4.", "text/plain", ""}}}};
  made.main_key_alone = true;
  return made;
}

void add_service_routes(std::vector<route>& table, const shared_services& with,
                        std::function<std::string()> document) {
  const auto kept = std::make_shared<kept_document>(std::move(document));
  table.push_back({verb::get,
                   "/v1/openapi.json",
                   access::key_or_token,
                   body_use::ignored,
                   0,
                   [kept](const matched_request&) {
                     return answered_with({200, kept->text()});
                   },
                   {.id = "getOpenApiSchema",
                    .summary = "This document.",
                    .parameters = {{"token", "query", "The key, where a header cannot be sent."}},
                    .answers = {{"200", "An OpenAPI 3.1 document.", "application/json", ""}}}});
  for (const auto* path : {"/v1/openapi", "/v1/openapi.html"})
    table.push_back({verb::get,
                     path,
                     access::key_or_token,
                     body_use::ignored,
                     0,
                     [kept](const matched_request& what) {
                       return answered_with(page_response(kept->page(), what.takes_gzip()));
                     },
                     {}});
  table.push_back({verb::get,
                   "/health",
                   access::everybody,
                   body_use::ignored,
                   0,
                   [with](const matched_request&) { return answered_with(health(*with)); },
                   {.id = "healthCheck",
                    .summary = "Whether everything that is needed is there.",
                    .answers = {{"200", "It is.", "application/json", "OkResponse"},
                                {"503", "Something is missing; the answer says what.",
                                 "application/json", "HealthProblems"}}}});
  table.push_back(metrics_route(with));
}

} // namespace insula::http::bridge

#include "http/transport/figures.hpp"

#include "http/transport/exchange.hpp"

#include <algorithm>

namespace insula::http {

namespace {

constexpr std::array verbs{verb::get, verb::put, verb::post, verb::patch, verb::del, verb::other};

std::string_view name_of(verb method) {
  switch (method) {
    case verb::get: return "GET";
    case verb::put: return "PUT";
    case verb::post: return "POST";
    case verb::patch: return "PATCH";
    case verb::del: return "DELETE";
    case verb::other: break;
  }
  return "other";
}

} // namespace

void route_figures::count(int status, std::chrono::nanoseconds took) {
  const auto at = std::find(statuses.begin(), statuses.end(), status) - statuses.begin();
  answered[static_cast<std::size_t>(at)].add();
  duration.observe(took);
}

void route_figures::count_aborted(std::chrono::nanoseconds after) {
  aborted.add();
  duration.observe(after);
}

figures::figures() {
  for (const auto method : verbs) {
    auto& row = routes_.emplace_back();
    row.method = name_of(method);
    row.api = "none";
    row.route = "unmatched";
  }
}

route_figures& figures::of(verb method, std::string_view pattern, std::string_view api) {
  const auto name = name_of(method);
  const auto known = std::find_if(routes_.begin(), routes_.end(), [&](const auto& each) {
    return each.route == pattern && each.method == name;
  });
  if (known != routes_.end())
    return *known;
  auto& row = routes_.emplace_back();
  row.method = name;
  row.api = api;
  row.route = pattern;
  return row;
}

route_figures& figures::unmatched(verb method) {
  const auto at = std::find(verbs.begin(), verbs.end(), method) - verbs.begin();
  return routes_[static_cast<std::size_t>(at)];
}

template <class Append>
void figures::each_route(Append append) const {
  for (const auto& row : routes_)
    append(row, metrics::label{"api", row.api}, metrics::label{"route", row.route},
           metrics::label{"method", row.method});
}

void figures::write(metrics::text& into) const {
  using metrics::kind;
  into.family("insula_http_requests_total", kind::counter,
              "Requests that have been answered, by the status of the answer; aborted: the client "
              "was gone before it was complete, or it had to be cut.");
  each_route([&](const route_figures& row, const auto&... labels) {
    for (std::size_t i = 0; i < row.answered.size(); ++i) {
      if (row.answered[i].value() == 0)
        continue;
      const auto status = i < row.statuses.size() ? std::to_string(row.statuses[i]) : "other";
      into.sample(row.answered[i], {labels..., {"status", status}});
    }
    if (row.aborted.value() > 0)
      into.sample(row.aborted, {labels..., {"status", "aborted"}});
  });
  const auto durations = [&](std::string_view name, std::string_view help,
                             metrics::histogram route_figures::*which) {
    into.family(name, kind::histogram, help);
    each_route([&](const route_figures& row, const auto&... labels) {
      if ((row.*which).count() > 0)
        into.sample(row.*which, {labels...});
    });
  };
  durations("insula_http_request_duration_seconds",
            "From a request's header to the end of its answer.", &route_figures::duration);
  durations("insula_http_stream_head_seconds",
            "From a request's header to the head of an answer that comes bit by bit.",
            &route_figures::head);
  durations("insula_http_stream_first_byte_seconds",
            "From a request's header to the first byte of such an answer's body.",
            &route_figures::first_byte);
  into.single("insula_http_connections", kind::gauge, "Connections that are open.", connections);
  into.single("insula_http_websockets", kind::gauge,
              "Of the connections, those that are WebSockets.", web_sockets);
  into.single("insula_http_sent_away_total", kind::counter,
              "Connections whose clients had shown no key, closed to make room for others.",
              sent_away);
  into.single("insula_http_requests_in_flight", kind::gauge,
              "Requests whose header is there and whose answer is not complete.", in_flight);
  into.single("insula_http_received_bytes_total", kind::counter,
              "Bytes of HTTP that clients have sent.", bytes_in);
  into.single("insula_http_sent_bytes_total", kind::counter,
              "Bytes of HTTP that clients have taken.", bytes_out);
}

} // namespace insula::http

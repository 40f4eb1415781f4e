#include "http/transport/exchange.hpp"
#include "http/transport/request_track.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"

#include <set>
#include <string>
#include <vector>

using namespace insula;
using namespace insula::http;
using namespace insula::test;
using namespace std::chrono_literals;

TEST_CASE("a request goes by the id that it brings, if that is one", "[http][request]") {
  for (const auto& good : {std::string{"a"}, std::string{"my-req.1_B"}, std::string(64, 'x')})
    CHECK(request_id(good) == good);
  std::set<std::string> made;
  const std::vector<std::string> others{
    "", "a b", "a=b", "a\"b", "a\r\nSet-Cookie: x", "\xc3\xa9", std::string(65, 'x')};
  for (const auto& bad : others)
    for (int i = 0; i < 100; ++i) {
      const auto id = request_id(bad);
      CHECK(id != bad);
      CHECK(request_id(id) == id);
      made.insert(id);
    }
  CHECK(made.size() == 700);
}

TEST_CASE("Server-Timing says what is known, in milliseconds and in order", "[http][request]") {
  request_times times{request_times::clock::now() - 1s};
  const std::string nothing = server_timing(times);
  CHECK(nothing.starts_with("total;dur=1"));
  start_times parts{};
  parts.fill(1500us);
  times.waited(20ms);
  times.reached(request_times::stage::queue);
  times.started(parts);
  times.reached(request_times::stage::start);
  const auto text = server_timing(times);
  std::size_t at = 0;
  for (const std::string entry : {"queue;dur=", ", sandbox;dur=20.000", ", lease;dur=1.500;desc=\"",
                                  ", ready;dur=1.500;desc=", ", start;dur=", ", total;dur="}) {
    const auto found = text.find(entry, at);
    CHECK(found != std::string::npos);
    at = found;
  }
  CHECK(text.find("first") == std::string::npos);
}

TEST_CASE("each request is counted once, with what became of it", "[http][request]") {
  const auto counts = std::make_shared<figures>();
  auto& row = counts->of(verb::get, "/v1/:id", "plain");
  CHECK(&counts->of(verb::get, "/v1/:id", "plain") == &row);
  const auto page = [&] {
    metrics::text text;
    counts->write(text);
    return metrics_page{text.str()};
  };
  const auto answered = [&](const char* status) {
    return page().value(
      "insula_http_requests_total",
      {{"api", "plain"}, {"route", "/v1/:id"}, {"method", "GET"}, {"status", status}});
  };
  {
    request_track one{counts, row, {"id", nullptr}};
    request_track moved{std::move(one)};
    CHECK(page().value("insula_http_requests_in_flight") == 1);
    moved.finish(404, 10);
    moved.finish(200);
    request_track cut{counts, row, {"id", nullptr}};
    request_track odd{counts, row, {"id", nullptr}};
    odd.finish(418);
  }
  CHECK(page().value("insula_http_requests_in_flight") == 0);
  CHECK(answered("404") == 1);
  CHECK(answered("200") == 0);
  CHECK(answered("other") == 1);
  CHECK(answered("aborted") == 1);
  CHECK(page().value("insula_http_request_duration_seconds_count",
                     {{"api", "plain"}, {"route", "/v1/:id"}, {"method", "GET"}}) == 3);
}

TEST_CASE("the first answer after a recovery says as of when files are", "[http][request]") {
  const auto counts = std::make_shared<figures>();
  auto& row = counts->of(verb::get, "/v1/:id", "plain");
  const auto recovered = std::make_shared<recovery>(1'777'629'600'007);
  const auto fields_of = [&] {
    request_context context{"id"};
    context.recovered = std::make_shared<recovery_place>();
    context.recovered->put(recovered);
    const request_track track{counts, row, context};
    std::string head;
    track.append_fields(head);
    return head;
  };
  CHECK(fields_of() == "X-Request-Id: id\r\nInsula-Recovered: 2026-05-01T10:00:00.007Z\r\n");
  CHECK(fields_of() == "X-Request-Id: id\r\n");
  CHECK(recovered->told());
}

#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"

#include <chrono>
#include <thread>

using namespace insula;
using namespace insula::test;

namespace {

const std::string box = "/v1/sandbox/abcdefghijklmnopqrstuvwxyz";
const std::string echo = R"({"argv":["echo","hi"]})";
const std::string exec_row = "/v1/sandbox/:id/exec";

metrics_page scrape(std::uint16_t port, std::string_view fields = {}) {
  const auto got = ask(port, "GET", "/metrics", {}, fields);
  CHECK(got.status == 200);
  CHECK(got.fields.at("content-type") == "text/plain; version=0.0.4; charset=utf-8");
  return metrics_page{got.body};
}

double answered(const metrics_page& page, const std::string& route, const std::string& method,
                const std::string& status) {
  return page.value("insula_http_requests_total",
                    {{"api", route == "unmatched" ? "none" : "bridge"},
                     {"route", route},
                     {"method", method},
                     {"status", status}});
}

/// What a stream counts when its end is handed over may come a moment after the client has it.
double soon_answered(std::uint16_t port, const std::string& route, const std::string& method,
                     const std::string& status, double wanted) {
  double now = 0;
  for (int i = 0; i < 1000 && now < wanted; ++i) {
    now = answered(scrape(port), route, method, status);
    std::this_thread::sleep_for(std::chrono::milliseconds{now < wanted ? 10 : 0});
  }
  return now;
}

} // namespace

TEST_CASE("the figures are for those who have the key", "[http][metrics]") {
  http::server_options options;
  options.api_key = "s3cret";
  house h{std::move(options)};
  CHECK(ask(h.port(), "GET", "/metrics").status == 401);
  CHECK(ask(h.port(), "GET", "/metrics?token=s3cret").status == 401);
  CHECK(ask(h.port(), "GET", "/metrics", {}, "Authorization: Bearer wrong\r\n").status == 401);
  for (const char* each : {"/v2/sandboxes", "/sandboxes", "/v1/pool/stats"})
    CHECK(ask(h.port(), "GET", each).status == 401);
  const auto page = scrape(h.port(), "Authorization: Bearer s3cret\r\n");
  CHECK(answered(page, "/metrics", "GET", "401") == 3);
  const auto refused = [&](const char* api, const char* route) {
    return page.value("insula_http_requests_total",
                      {{"api", api}, {"route", route}, {"method", "GET"}, {"status", "401"}});
  };
  CHECK(refused("vercel", "/v2/sandboxes") == 1);
  CHECK(refused("opensandbox", "/sandboxes") == 1);
  CHECK(refused("bridge", "/v1/pool/stats") == 1);
  CHECK(h.server().metrics_port() == 0);
}

TEST_CASE("a listener of its own has the figures and nothing else", "[http][metrics]") {
  http::server_options options;
  options.api_key = "s3cret";
  options.more_figures = [](metrics::text& into) {
    into.single("more", metrics::kind::gauge, "More.", std::uint64_t{7});
  };
  SECTION("for this machine alone it asks for no key") {
    options.metrics = {"127.0.0.1", 0, false};
    house h{std::move(options)};
    const auto port = h.server().metrics_port();
    REQUIRE(port != 0);
    CHECK(scrape(port).value("more") == 7);
    CHECK(ask(port, "GET", "/health").status == 404);
    CHECK(ask(port, "POST", "/v1/sandbox").status == 404);
    CHECK(ask(port, "POST", box + "/exec", echo, "Authorization: Bearer s3cret\r\n").status == 404);
    // A web page that has got this machine to answer by another name learns nothing.
    CHECK(ask(port, "GET", "/metrics", {}, "Origin: http://evil.example\r\n").status == 403);
    CHECK(h.heard().all().empty());
  }
  SECTION("elsewhere it asks as the other one does") {
    options.metrics = {"127.0.0.1", 0, true};
    house h{std::move(options)};
    const auto port = h.server().metrics_port();
    CHECK(ask(port, "GET", "/metrics").status == 401);
    CHECK(scrape(port, "Authorization: Bearer s3cret\r\n").value("more") == 7);
  }
}

TEST_CASE("requests are counted by their row, and never by their path", "[http][metrics]") {
  house h;
  h.plays().output = {{output_stream::out, "hi\n"}};
  ask(h.port(), "POST", "/v1/sandbox");
  ask(h.port(), "POST", box + "/exec", echo);
  ask(h.port(), "POST", box + "/exec", "{broken");
  ask(h.port(), "DELETE", box);
  ask(h.port(), "GET", "/my/secret/path");
  ask(h.port(), "OPTIONS", "/v1/sandbox");
  client{h.port()}.send("no HTTP\r\n\r\n");
  CHECK(soon_answered(h.port(), "unmatched", "other", "400", 1) == 1);
  CHECK(soon_answered(h.port(), exec_row, "POST", "200", 1) == 1);
  client broken{h.port()};
  broken.send("POST " + box + "/exec HTTP/1.1\r\nHost: localhost\r\n" +
              "Transfer-Encoding: chunked\r\n\r\nno size\r\n");
  CHECK(soon_answered(h.port(), exec_row, "POST", "400", 2) == 2);
  const auto text = ask(h.port(), "GET", "/metrics").body;
  CHECK(text.find("secret") == std::string::npos);
  CHECK(text.find("abcdefghijklmnopqrstuvwxyz") == std::string::npos);
  const metrics_page page{text};
  CHECK(answered(page, "/v1/sandbox", "POST", "200") == 1);
  CHECK(answered(page, "unmatched", "other", "400") == 1);
  CHECK(answered(page, "/v1/sandbox/:id", "DELETE", "204") == 1);
  CHECK(answered(page, "unmatched", "GET", "404") == 1);
  CHECK(answered(page, "unmatched", "other", "401") + answered(page, "unmatched", "other", "404") ==
        1);
  const metric_labels exec{{"api", "bridge"}, {"route", exec_row}, {"method", "POST"}};
  CHECK(page.value("insula_http_request_duration_seconds_count", exec) == 3);
  CHECK(page.value("insula_http_stream_head_seconds_count", exec) == 1);
  CHECK(page.value("insula_http_stream_first_byte_seconds_count", exec) == 1);
  CHECK(page.value("insula_http_requests_in_flight") == 1); // The one that asks.
  CHECK(page.value("insula_http_connections") >= 1);
  CHECK(page.value("insula_http_received_bytes_total") > 100);
  CHECK(page.value("insula_http_sent_bytes_total") > 100);
}

TEST_CASE("a client that leaves before the end is counted as such", "[http][metrics]") {
  house h;
  h.plays().output = {{output_stream::out, "hi\n"}};
  h.plays().end.reset();
  {
    client leaving{h.port()};
    leaving.send(request("POST", box + "/exec", echo));
    CHECK(leaving.receive(true).status == 200);
  }
  CHECK(soon_answered(h.port(), exec_row, "POST", "aborted", 1) == 1);
  {
    client half{h.port()};
    half.send("PUT " + box +
              "/file/workspace/a HTTP/1.1\r\nHost: localhost\r\n"
              "Content-Length: 100\r\n\r\nhalf");
    CHECK(h.heard().has("write_file /workspace/a"));
  }
  CHECK(soon_answered(h.port(), "/v1/sandbox/:id/file/*", "PUT", "aborted", 1) == 1);
}

TEST_CASE("every answer names its request, by the id that the client has sent", "[http][metrics]") {
  house h;
  h.plays().output = {{output_stream::out, "hi\n"}};
  const std::string mine = "X-Request-Id: my-1\r\n";
  CHECK(ask(h.port(), "POST", box + "/exec", echo, mine).fields.at("x-request-id") == "my-1");
  CHECK(h.last_exec().context.id == "my-1");
  CHECK(h.last_exec().context.times == nullptr);
  CHECK(ask(h.port(), "GET", "/nowhere", {}, mine).fields.at("x-request-id") == "my-1");
  // Refused before its body.
  CHECK(ask(h.port(), "POST", "/v1/sandbox/NO/exec", std::string(1 << 20, 'x'), mine)
          .fields.at("x-request-id") == "my-1");
  const auto first = ask(h.port(), "GET", "/health").fields.at("x-request-id");
  const auto second =
    ask(h.port(), "GET", "/health", {}, "X-Request-Id: not one\r\n").fields.at("x-request-id");
  CHECK(first.size() == 13);
  CHECK(second.size() == 13);
  CHECK(first != second);
}

TEST_CASE("Server-Timing is there for those who ask, and then the head waits for the first event",
          "[http][metrics]") {
  house h;
  h.plays().output = {{output_stream::out, "hi\n"}};
  const std::string asked = "X-Server-Timing: 1\r\n";
  for (const std::string fields : {"", "X-Server-Timing: 0\r\n", "X-Server-Timing: yes\r\n"})
    CHECK_FALSE(
      ask(h.port(), "POST", box + "/exec", echo, fields).fields.contains("server-timing"));
  const auto exec = ask(h.port(), "POST", box + "/exec", echo, asked);
  const auto timing = exec.fields.at("server-timing");
  for (const char* entry : {"queue;dur=", "start;dur=", "first;dur=", "total;dur="})
    CHECK(timing.find(entry) != std::string::npos);
  CHECK(timing.find("sandbox;dur=") == std::string::npos); // The fakes' sandbox had not to start.
  CHECK(exec.body == ask(h.port(), "POST", box + "/exec", echo).body);
  CHECK(ask(h.port(), "POST", "/v1/sandbox", {}, asked).fields.at("server-timing").find("total") ==
        0);

  house silent;
  silent.plays().end.reset();
  client one{silent.port()};
  one.send(request("POST", box + "/exec", echo, asked));
  CHECK(silent.heard().has("read 0 attached"));
  silent.end_command({});
  const auto head = one.receive();
  CHECK(head.complete);
  CHECK(head.fields.at("server-timing").find("first;dur=") != std::string::npos);
}

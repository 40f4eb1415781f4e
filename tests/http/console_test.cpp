#include "http/server.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace insula;
using namespace insula::test;

namespace {

http::server_options with_key() {
  http::server_options options;
  options.api_key = "s3cret";
  return options;
}

/// What a browser says on behalf of the console's page.
struct browser {
  explicit browser(const house& at)
      : port(at.port())
      , host("localhost:" + std::to_string(port))
      , own("Origin: http://" + host + "\r\n") {}

  /// client's request() names 127.0.0.1; a browser goes by the name in its address bar.
  answer send(std::string_view method, std::string_view target, const std::string& fields,
              const std::string& body = {}) const {
    client to{port, false, address};
    to.send(std::string{method} + " " + std::string{target} + " HTTP/1.1\r\nHost: " + host +
            "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
            fields + "\r\n" + body);
    return to.receive();
  }
  browser from(const std::string& other) const {
    auto moved = *this;
    moved.address = other;
    return moved;
  }
  answer sign_in(const std::string& key) const {
    return send("POST", "/console/sign-in", own, key);
  }
  static std::string cookie_of(const answer& signed_in) {
    const auto& field = signed_in.fields.at("set-cookie");
    return "Cookie: " + field.substr(0, field.find(';')) + "\r\n";
  }

  std::uint16_t port;
  std::string host, own;
  std::string address = "127.0.0.1"; ///< Of its own.
};

} // namespace

TEST_CASE("the console is one page for everybody, which may load nothing and is in no frame",
          "[http][console]") {
  house h{with_key()};
  const auto page = ask(h.port(), "GET", "/");
  CHECK(page.status == 200);
  CHECK(page.fields.at("content-type") == "text/html; charset=utf-8");
  CHECK(page.fields.at("cache-control") == "no-store");
  CHECK(page.fields.at("x-content-type-options") == "nosniff");
  CHECK(page.fields.at("referrer-policy") == "same-origin");
  CHECK(page.body.substr(0, 15) == "<!doctype html>");
  CHECK(page.body.find("s3cret") == std::string::npos);
  CHECK(page.body.find("sourceMappingURL") == std::string::npos);
  const auto& policy = page.fields.at("content-security-policy");
  for (const auto* part :
       {"default-src 'none'", "script-src 'sha256-", "style-src 'sha256-", "connect-src 'self'",
        "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"}) {
    CAPTURE(part);
    CHECK(policy.find(part) != std::string::npos);
  }
  CHECK(policy.find("unsafe-eval") == std::string::npos);
  CHECK(policy.find("script-src 'unsafe-inline'") == std::string::npos);
  const auto packed = ask(h.port(), "GET", "/", {}, "Accept-Encoding: gzip\r\n");
  CHECK(packed.fields.at("content-encoding") == "gzip");
  CHECK(packed.body.size() < page.body.size() / 3);
}

TEST_CASE("the console is no part of the API that is described", "[http][console]") {
  CHECK(http::openapi_document().find("console") == std::string::npos);
  CHECK(http::openapi_document().find("\"/\"") == std::string::npos);
}

TEST_CASE("who types the key gets a cookie that no script reads and no other page sends",
          "[http][console]") {
  house h{with_key()};
  const browser chromium{h};
  const auto wrong = chromium.sign_in("S3cret");
  CHECK(wrong.status == 401);
  CHECK(wrong.body == R"({"error":"This is not the key.","code":"unauthorized"})");
  CHECK(wrong.fields.count("set-cookie") == 0);
  CHECK(chromium.sign_in("").status == 401);

  const auto right = chromium.sign_in("s3cret");
  CHECK(right.status == 204);
  const auto& cookie = right.fields.at("set-cookie");
  CHECK(cookie.find("insula-" + std::to_string(h.port()) + "=") == 0);
  CHECK(cookie.find("; Path=/; HttpOnly; SameSite=Strict") != std::string::npos);
  CHECK(cookie.find("Secure") == std::string::npos); // Else it would never come back.
  CHECK(cookie.find("s3cret") == std::string::npos);

  const auto mine = browser::cookie_of(right);
  CHECK(
    chromium.send("GET", "/console/sandboxes", mine + "Sec-Fetch-Site: same-origin\r\n").status ==
    200);
  CHECK(chromium.send("POST", "/v1/sandbox", mine + chromium.own).status == 200);
  CHECK(chromium.send("POST", "/v1/sandbox", mine + "Origin: http://evil.example\r\n").status ==
        401);
  CHECK(chromium.send("POST", "/v1/sandbox", mine).status == 401);
  CHECK(ask(h.port(), "GET", "/console/sandboxes").status == 401);
  CHECK(ask(h.port(), "GET", "/console/sandboxes", {}, "Authorization: Bearer s3cret\r\n").status ==
        200);

  const auto out = chromium.send("POST", "/console/sign-out", mine + chromium.own);
  CHECK(out.status == 204);
  CHECK(out.fields.at("set-cookie").find("; Max-Age=0") != std::string::npos);
  CHECK(chromium.send("POST", "/v1/sandbox", mine + chromium.own).status == 401);
}

TEST_CASE("other pages can neither try keys nor sign anybody out", "[http][console]") {
  house h{with_key()};
  const browser chromium{h};
  for (const auto* fields : {"", "Origin: http://evil.example\r\n", "Origin: null\r\n"})
    for (const auto* path : {"/console/sign-in", "/console/sign-out"})
      CHECK(chromium.send("POST", path, fields, "s3cret").status == 403);
}

TEST_CASE("after ten wrong keys a wrong one has to wait, and the right one never does",
          "[http][console]") {
  house h{with_key()};
  const browser chromium{h};
  for (int i = 0; i < 10; ++i)
    CHECK(chromium.sign_in("wrong" + std::to_string(i)).status == 401);
  const auto late = chromium.sign_in("another");
  CHECK(late.status == 429);
  CHECK(std::stoi(late.fields.at("retry-after")) > 0);
  CHECK(chromium.sign_in("s3cret").status == 204);
  CHECK(chromium.sign_in("another").status == 429);
  // Neither is anybody concerned who asks from elsewhere, or has the key elsewhere.
  CHECK(chromium.from("127.0.0.2").sign_in("wrong").status == 401);
  CHECK(ask(h.port(), "GET", "/console/sandboxes", {}, "Authorization: Bearer s3cret\r\n").status ==
        200);
}

TEST_CASE("encrypted, the cookie is one that no other host can set", "[http][console]") {
  house h{with_key()}; // Behind a proxy that speaks TLS.
  const browser chromium{h};
  const auto own = "Origin: https://" + chromium.host + "\r\n";
  const auto in = chromium.send("POST", "/console/sign-in", own, "s3cret");
  const auto& cookie = in.fields.at("set-cookie");
  CHECK(cookie.find("__Host-insula-" + std::to_string(h.port()) + "=") == 0);
  CHECK(cookie.find("; Path=/; HttpOnly; SameSite=Strict; Secure") != std::string::npos);
  CHECK(cookie.find("Domain") == std::string::npos);
  const auto name = cookie.substr(7, cookie.find('=') - 7);
  const auto mine = "Cookie: " + name + "=tossed; " + cookie.substr(0, cookie.find(';')) + "\r\n";
  CHECK(chromium.send("POST", "/v1/sandbox", mine + own).status == 200);
  CHECK(chromium.send("POST", "/console/sign-out", mine + own).status == 204);
  CHECK(chromium.send("POST", "/v1/sandbox", mine + own).status == 401);
}

TEST_CASE("a key that is too long for one is refused unread", "[http][console]") {
  house h{with_key()};
  const browser chromium{h};
  CHECK(chromium.sign_in(std::string(16 * 1024, 'x')).status == 401);
  CHECK(chromium.sign_in(std::string(16 * 1024 + 1, 'x')).status == 413);
}

TEST_CASE("without a key the console is for pages of this node only", "[http][console]") {
  house h;
  const browser chromium{h};
  CHECK(chromium.send("GET", "/", {}).status == 200);
  CHECK(chromium.send("GET", "/console/sandboxes", {}).status == 200);
  const auto in = chromium.sign_in("whatever");
  CHECK(in.status == 204);
  CHECK(in.fields.count("set-cookie") == 0);
  for (const auto* path : {"/", "/console/sandboxes"}) {
    CHECK(chromium.send("GET", path, "Origin: http://evil.example\r\n").status == 403);
    client rebound{h.port()};
    rebound.send("GET " + std::string{path} + " HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    CHECK(rebound.receive().status == 403);
  }
  const auto by_link = "Sec-Fetch-Site: cross-site\r\n";
  CHECK(chromium.send("GET", "/", by_link).status == 200);
  CHECK(chromium.send("GET", "/v1/sandbox/abc/running", by_link).status == 403);
}

TEST_CASE("the console's list comes by pages", "[http][console]") {
  house h;
  for (const auto* id : {"abc", "abd", "abe", "abf", "abg"})
    h.plays().list.push_back({.id = id, .state = "running"});
  h.plays().most_on_page = 2;
  const auto list = [&](const std::string& query) {
    const auto got = ask(h.port(), "GET", "/console/sandboxes" + query);
    CHECK(got.status == 200);
    std::string ids;
    for (std::size_t at = 0; (at = got.body.find(R"({"id":")", at)) != std::string::npos; ++at)
      ids += got.body.substr(at + 7, 3) + " ";
    const auto next = got.body.find(R"(,"next":)");
    const auto end = got.body.find(R"(,"sandboxes")");
    return ids + (next == std::string::npos ? "" : got.body.substr(next + 1, end - next - 1));
  };
  CHECK(list("") == R"(abc abd "next":"2","total":5)");
  CHECK(list("?after=2") == R"(abe abf "next":"4","total":5)");
  CHECK(list("?after=4") == "abg ");
  CHECK(list("?after=") == R"(abc abd "next":"2","total":5)");
  for (const auto* odd : {"x", "-1", "1x", "18446744073709551616"})
    CHECK(ask(h.port(), "GET", "/console/sandboxes?after=" + std::string{odd}).status == 400);
}

TEST_CASE("the list has what is known of every sandbox, and leaves out what is not",
          "[http][console]") {
  house h{with_key()};
  sandbox_status busy;
  busy.id = "abc";
  busy.state = "running";
  busy.created_ms = 1'700'000'000'000;
  busy.memory_bytes = 5'000'000'000;
  busy.cpu_us = 0;
  busy.processes = 7;
  busy.terminals = 2;
  sandbox_status silent;
  silent.id = "abd";
  silent.current = false;
  h.plays().list = {busy, silent};
  const auto got =
    ask(h.port(), "GET", "/console/sandboxes", {}, "Authorization: Bearer s3cret\r\n");
  CHECK(got.status == 200);
  CHECK(got.fields.at("cache-control") == "no-store");
  CHECK(got.body.substr(0, 21) == R"({"key":true,"now_ms":)");
  CHECK(got.body.substr(got.body.find(",\"sandboxes\"")) ==
        R"(,"sandboxes":[{"id":"abc","state":"running","current":true,"created_ms":1700000000000,)"
        R"("memory_bytes":5000000000,"cpu_us":0,"processes":7,"sessions":0,"terminals":2},)"
        R"({"id":"abd","state":"asleep","current":false,"sessions":0,"terminals":0}]})");
  house open;
  CHECK(ask(open.port(), "GET", "/console/sandboxes").body.substr(0, 12) == R"({"key":false)");
}

TEST_CASE("the list has the caption of a sandbox and its latest run", "[http][console]") {
  house h;
  sandbox_status row;
  row.id = "abc";
  row.state = "running";
  row.caption = sandbox_caption{"prj_x", "main-box", {{"owner", "tests"}, {"<img>", "a\"\xff"}}};
  row.run = sandbox_run{.number = 7,
                        .state = run_state::running,
                        .asked_ms = 900,
                        .started_ms = 1'000,
                        .timeout_ms = 60'000};
  const auto told = [&] {
    h.plays().list = {row};
    const auto body = ask(h.port(), "GET", "/console/sandboxes").body;
    return body.substr(body.find(R"(,"terminals":0)") + 14);
  };
  const std::string caption = R"(,"name":"main-box","group":"prj_x","tags":{"<img>":"a\")"
                              "\xef\xbf\xbd"
                              R"(","owner":"tests"})";
  const auto with_run = [](const std::string& run) { return R"(,"run":{)" + run + "}}]}"; };
  auto& run = *row.run;
  CHECK(told() == caption + with_run(R"("number":7,"state":"running","started_ms":1000,)"
                                     R"("ends_ms":61000)"));

  INFO("without a caption, and before its start");
  row.caption.reset();
  run.state = run_state::pending;
  run.started_ms = 0;
  CHECK(told() == with_run(R"("number":7,"state":"pending","ends_ms":60900)"));

  INFO("what a run has used is known of one that was stopped");
  run.started_ms = 1'000;
  run.ended_ms = 8'000;
  run.state = run_state::stopped;
  run.cpu_ms = 1'500;
  run.bytes_in = 12;
  CHECK(told() == with_run(R"("number":7,"state":"stopped","started_ms":1000,"ended_ms":8000,)"
                           R"("cpu_ms":1500,"bytes_in":12,"bytes_out":0)"));
  run.state = run_state::aborted;
  CHECK(told() == with_run(R"("number":7,"state":"aborted","started_ms":1000,"ended_ms":8000)"));
}

TEST_CASE("the runs of a sandbox come by pages of 20, the newest first", "[http][console]") {
  house h{with_key()};
  const auto get = [&](const std::string& path) {
    return ask(h.port(), "GET", "/console/sandboxes/" + path, {},
               "Authorization: Bearer s3cret\r\n");
  };
  auto& is = h.plays().description;
  is.exists = true;
  is.caption = sandbox_caption{"prj_x", "main-box"};
  for (std::uint64_t number = 45; number > 0; --number)
    h.plays().runs.push_back({.number = number,
                              .state = run_state::stopped,
                              .started_ms = 1,
                              .ended_ms = 2,
                              .cpu_ms = 3,
                              .bytes_in = 4,
                              .bytes_out = 5});
  const auto page = [&](const std::string& query) {
    const auto got = get("abc/runs" + query);
    CHECK(got.status == 200);
    CHECK(got.fields.at("cache-control") == "no-store");
    std::size_t count = 0;
    for (std::size_t at = 0; (at = got.body.find(R"({"number":)", at)) != std::string::npos; ++at)
      ++count;
    const auto next = got.body.find(R"("next":)"), begin = got.body.find(R"("runs":)");
    return std::to_string(count) + " from " + got.body.substr(begin + 18, 2) +
           (next == std::string::npos ? "" : ", " + got.body.substr(next, begin - next - 1));
  };
  CHECK(page("") == R"(20 from 45, "next":"26")");
  CHECK(page("?after=26") == R"(20 from 25, "next":"6")");
  CHECK(page("?after=6") == "5 from 5,");
  for (const auto* odd : {"x", "-1", "18446744073709551616"})
    CHECK(get("abc/runs?after=" + std::string{odd}).status == 400);

  INFO("with what the sandbox is called, and the sums of all");
  h.plays().runs.resize(1);
  is.totals = {45, 45'000, 135, 180, 225};
  auto got = get("abc/runs").body;
  CHECK(got.substr(0, 11) == R"({"now_ms":1)");
  CHECK(got.substr(got.find(R"(,"name")")) ==
        R"(,"name":"main-box","group":"prj_x","tags":{},"totals":{"runs":45,"duration_ms":45000,)"
        R"("cpu_ms":135,"bytes_in":180,"bytes_out":225},"runs":[{"number":45,"state":"stopped",)"
        R"("started_ms":1,"ended_ms":2,"cpu_ms":3,"bytes_in":4,"bytes_out":5}]})");
  is.caption.reset();
  is.totals = {};
  h.plays().runs.clear();
  got = get("abc/runs").body;
  CHECK(got.substr(got.find(R"(,"runs")")) == R"(,"runs":[]})");
  CHECK(got.find("name") == std::string::npos);
}

TEST_CASE("a look at the runs of a sandbox starts nothing, and needs the key", "[http][console]") {
  house h{with_key()};
  const auto get = [&](const std::string& path, const std::string& key) {
    return ask(h.port(), "GET", "/console/sandboxes/" + path, {}, key);
  };
  const std::string key = "Authorization: Bearer s3cret\r\n";
  CHECK(get("abc/runs", {}).status == 401);
  const auto none = get("abc/runs", key);
  CHECK(none.status == 404);
  CHECK(none.body == R"({"error":"There is no such sandbox.","code":"not_found"})");
  CHECK(get("A!/runs", key).body == none.body);
  h.plays().description.exists = true;
  CHECK(get("abc/runs", key).status == 200);
  h.plays().runs_error = error{errc::store_failed, "the store does not answer"};
  const auto failed = get("abc/runs", key);
  CHECK(failed.status == 502);
  CHECK(failed.body == R"({"error":"the store does not answer","code":"node_unreachable"})");
  for (const auto& each : h.heard().all())
    CHECK(each == "reach abc");
}

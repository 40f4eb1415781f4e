#include "tests/e2e/node.hpp"
#include "tests/http/client.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <string>
#include <sys/resource.h>
#include <vector>

using namespace insula::test;

namespace {

std::string failure(const std::string& text, const std::string& code) {
  return R"({"error":")" + text + R"(","code":")" + code + "\"}";
}

const std::string key = "Authorization: Bearer secret\r\n";

} // namespace

TEST_CASE("every refusal has the contract's status and body", "[http]") {
  const node it{"server: {api_key: secret}"};
  const auto bad_json = failure("Invalid JSON body", "invalid_request");
  const auto bad_argv = failure("argv must be a non-empty array", "invalid_request");
  const auto bad_id = failure("Invalid sandbox ID format", "invalid_request");
  const auto bad_session = failure("Invalid session ID format", "invalid_request");
  const auto no_path = failure("file path must not be empty", "invalid_request");
  const auto outside =
    failure("path must resolve to a location within /workspace", "invalid_request");
  const auto no_key = failure("Unauthorized", "unauthorized");
  const auto unknown = failure("404 Not Found", "not_found");
  const auto takes = [](const std::string& methods) {
    return failure("404 Not Found: this path takes " + methods, "not_found");
  };
  const std::string any; // Whatever it says.
  const std::string long_id(129, 'a');
  struct row {
    std::string method, target, fields, body;
    int status;
    std::string answer;
  };
  for (const auto& each : std::vector<row>{
         // The id comes before the key, in every method and below every path.
         {"POST", "/v1/sandbox/A/exec", "", "{}", 400, bad_id},
         {"GET", "/v1/sandbox/a1/running", "", "", 400, bad_id},
         {"DELETE", "/v1/sandbox/a_b", "", "", 400, bad_id},
         {"GET", "/v1/sandbox/%61/nothing", "", "", 400, bad_id},
         {"OPTIONS", "/v1/sandbox/../x", "", "", 400, bad_id},
         {"DELETE", "/v1/sandbox/" + long_id, key, "", 400, bad_id},
         {"DELETE", "/v1/sandbox/" + long_id.substr(1), key, "", 204, ""},
         // The key.
         {"POST", "/v1/sandbox", "", "", 401, no_key},
         {"POST", "/v1/sandbox", "Authorization: Bearer wrong\r\n", "", 401, no_key},
         {"POST", "/v1/sandbox", "Authorization: Bearer  secret\r\n", "", 401, no_key},
         {"POST", "/v1/sandbox", "Authorization: secret\r\n", "", 401, no_key},
         {"POST", "/v1/sandbox", "Authorization: bEARER secret\r\n", "", 200, any},
         {"POST", "/v1/sandbox/a/exec", "", R"({"argv":["true"]})", 401, no_key},
         {"POST", "/v1/sandbox/a/exec?token=secret", "", R"({"argv":["true"]})", 401, no_key},
         {"GET", "/v1/sandbox/a/running", "", "", 401, no_key},
         {"DELETE", "/v1/sandbox/a", "", "", 401, no_key},
         {"GET", "/v1/sandbox/a/file/workspace/x", "", "", 401, no_key},
         {"PUT", "/v1/sandbox/a/file/workspace/x", "", "x", 401, no_key},
         {"GET", "/v1/sandbox/", "", "", 401, no_key},
         {"GET", "/v1/sandbox/a/nothing", "", "", 401, no_key},
         {"GET", "/v1/pool/stats", "", "", 401, no_key},
         {"GET", "/v1/openapi.json", "", "", 401, no_key},
         {"GET", "/v1/openapi.json?token=secret", "", "", 200, any},
         {"GET", "/health", "", "", 200, R"({"ok":true})"},
         // Unknown.
         {"GET", "/console/", "", "", 404, unknown},
         {"GET", "/v1/nope", "", "", 404, unknown},
         {"GET", "/v1/sandbox/", key, "", 404, unknown},
         {"GET", "/v1/sandbox/a/nothing", key, "", 404, unknown},
         {"GET", "/v1/sandbox/a/running/", key, "", 404, unknown},
         {"GET", "/v1/sandbox/a//running", key, "", 404, unknown},
         {"POST", "/v1/sandbox/a/running", key, "", 404, takes("GET, HEAD")},
         {"GET", "/v1/sandbox/a/exec", key, "", 404, takes("POST")},
         {"OPTIONS", "/v1/sandbox/a/exec", key, "", 404, takes("POST")},
         {"PATCH", "/v1/sandbox/a/file/workspace/x", key, "x", 404, takes("GET, HEAD, PUT")},
         // Exec.
         {"POST", "/v1/sandbox/a/exec", key, "", 400, bad_json},
         {"POST", "/v1/sandbox/a/exec", key, "{", 400, bad_json},
         {"POST", "/v1/sandbox/a/exec", key, R"({"argv":["a"]} x)", 400, bad_json},
         {"POST", "/v1/sandbox/a/exec", key, "{}", 400, bad_argv},
         {"POST", "/v1/sandbox/a/exec", key, "[]", 400, bad_argv},
         {"POST", "/v1/sandbox/a/exec", key, "7", 400, bad_argv},
         {"POST", "/v1/sandbox/a/exec", key, "\"x\"", 400, bad_argv},
         {"POST", "/v1/sandbox/a/exec", key, "null", 400, any},
         {"POST", "/v1/sandbox/a/exec", key, R"({"argv":[]})", 400, bad_argv},
         {"POST", "/v1/sandbox/a/exec", key, R"({"argv":"ls"})", 400, bad_argv},
         {"POST", "/v1/sandbox/a/exec", key, R"({"argv":[{}]})", 400, any},
         {"POST", "/v1/sandbox/a/exec", key, R"({"argv":[null]})", 400, any},
         {"POST", "/v1/sandbox/a/exec", key + "Session-Id: a b\r\n", R"({"argv":["a"]})", 400,
          bad_session},
         {"POST", "/v1/sandbox/a/exec", key + "Session-Id: a..b\r\n", R"({"argv":["a"]})", 400,
          bad_session},
         {"POST", "/v1/sandbox/a/exec", key + "Session-Id: a b\r\n", R"({"argv":["a"],"cwd":"/"})",
          400, bad_session},
         {"POST", "/v1/sandbox/a/exec", key, R"({"argv":["a"],"cwd":"/"})", 403,
          failure("cwd must resolve to a location within /workspace", "invalid_request")},
         // Files.
         {"GET", "/v1/sandbox/a/file", key, "", 400, no_path},
         {"GET", "/v1/sandbox/a/file/", key, "", 400, no_path},
         {"PUT", "/v1/sandbox/a/file/", key, "x", 400, no_path},
         {"GET", "/v1/sandbox/a/file/main.py", key, "", 403, outside},
         {"PUT", "/v1/sandbox/a/file/etc/passwd", key, "x", 403, outside},
         {"GET", "/v1/sandbox/a/file/workspace/%2e%2e/etc/passwd", key, "", 403, outside},
         {"GET", "/v1/sandbox/a/file/workspace/a%00b", key, "", 400, any},
         {"GET", "/v1/sandbox/a/file/workspace/x", key + "Session-Id: a b\r\n", "", 400,
          bad_session},
         {"GET", "/v1/sandbox/a/file/workspace/x", key, "", 404,
          failure("File not found: /workspace/x", "workspace_read_not_found")},
       }) {
    CAPTURE(each.method, each.target, each.fields, each.body);
    const auto got = it.ask(each.method, each.target, each.body, each.fields);
    CHECK(got.status == each.status);
    CHECK(got.complete);
    if (!each.answer.empty())
      CHECK(got.body == each.answer);
    if (got.status != 204)
      CHECK(got.fields.at("content-type").starts_with("application/json"));
    CHECK(got.fields.count("www-authenticate") == 0);
  }
  CHECK(it.log().find("secret") == std::string::npos);
}

TEST_CASE("wrong keys stand in the log, a line for a source and a minute", "[http]") {
  const node it{"server: {api_key: secret}"};
  const auto wrong_keys = [&] {
    std::vector<std::string> lines;
    const auto log = it.log();
    for (auto at = log.find("http.wrong_key"); at != log.npos;
         at = log.find("http.wrong_key", at + 1))
      lines.push_back(log.substr(at, log.find('\n', at) - at));
    return lines;
  };
  // Nobody has tried a key here.
  CHECK(it.ask("GET", "/v1/pool/stats").status == 401);
  CHECK(it.ask("GET", "/v1/sandboxes").status == 401);
  CHECK(it.ask("GET", "/health", {}, "Authorization: Bearer guess-0\r\n").status == 200);
  CHECK(it.ask("GET", "/v1/pool/stats", {}, key).status == 200);
  CHECK(wrong_keys().empty());
  for (const auto& [method, target, fields] : std::vector<std::array<std::string, 3>>{
         {"POST", "/v1/sandbox", "Authorization: Bearer guess-1\r\n"},
         {"GET", "/v1/sandboxes", "OPEN-SANDBOX-API-KEY: guess-2\r\n"},
         {"GET", "/sandboxes/a/proxy/44772/ping", "X-EXECD-ACCESS-TOKEN: guess-3\r\n"},
         {"GET", "/v1/openapi?token=guess-4", ""},
         {"GET", "/v1/sandbox/a/port/80/", "Authorization: Bearer guess-5\r\n"},
         {"GET", "/metrics", "Authorization: Basic Z3Vlc3M=\r\n"}})
    CHECK(it.ask(method, target, {}, fields).status == 401);
  REQUIRE(wrong_keys().size() == 1);
  CHECK(wrong_keys().front() ==
        "http.wrong_key from=127.0.0.1 by=Authorization route=\"POST /v1/sandbox\" left_out=0");
  CHECK(it.log().find(" warning http.wrong_key") != std::string::npos);
  // Also in the console, where more of them have to wait.
  for (int i = 0; i < 12; ++i)
    CHECK(it.ask("POST", "/console/sign-in", "guess-6", "Origin: http://localhost\r\n").status ==
          (i < 10 ? 401 : 429));
  client other{it.port(), false, "127.0.0.2"};
  other.send(request("GET", "/metrics", {}, "Authorization: Bearer guess-7\r\n"));
  CHECK(other.receive().status == 401);
  REQUIRE(wrong_keys().size() == 2);
  CHECK(wrong_keys().back() ==
        "http.wrong_key from=127.0.0.2 by=Authorization route=\"GET /metrics\" left_out=17");
  CHECK(it.log().find("guess-") == std::string::npos);
}

TEST_CASE("a request that is refused starts no sandbox", "[http]") {
  const node it;
  CHECK(it.ask("POST", "/v1/sandbox").status == 200);
  CHECK(it.ask("POST", "/v1/sandbox/a/exec", "{").status == 400);
  CHECK(it.ask("GET", "/v1/sandbox/a/file/x").status == 403);
  CHECK(it.remove("a") == 204);
  CHECK(it.sandbox_groups().empty());
  const auto one = it.ask("POST", "/v1/sandbox", "garbage").body,
             other = it.ask("POST", "/v1/sandbox", "{}").body;
  CHECK(one.size() == std::string{R"({"id":""})"}.size() + 26);
  CHECK(one != other);
}

TEST_CASE("malformed HTTP is answered or cut, and the server goes on", "[http]") {
  const node it;
  const std::string many_fields = [] {
    std::string text;
    for (int i = 0; i < 5000; ++i)
      text += "X-" + std::to_string(i) + ": y\r\n";
    return text;
  }();
  const std::string chunks =
    "POST /v1/sandbox/a/exec HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& bytes : std::vector<std::string>{
         "\r\n\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
         "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", std::string(100'000, 'A'),
         std::string(1000, '\0'), "GET / HTTP/1.1\r\n\r\n",
         "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
         "GET / HTTP/1.1\r\nHost: localhost\r\n" + many_fields + "\r\n",
         "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(200'000, 'x') + "\r\n\r\n",
         "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
         "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
         "99999999999999999999999\r\n\r\n",
         "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: "
         "5\r\n\r\nabcde",
         "POST /v1/sandbox/a/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
         "3\r\nTransfer-Encoding: "
         "chunked\r\n\r\n0\r\n\r\n",
         chunks + "zz\r\n", chunks + "ffffffffffffffffff\r\nx", chunks + "-1\r\n"}) {
    CAPTURE(bytes.substr(0, 80));
    http_connection one{it.port()};
    one.send(bytes);
    one.finish_sending();
    try {
      const auto got = one.receive();
      CHECK((got.status == 0 || got.status >= 400));
    } catch (const std::exception& failed) {
      FAIL_CHECK(failed.what());
    }
    CHECK(it.ask("GET", "/health").status == 200);
  }
  const auto long_url = it.ask("GET", "/v1/" + std::string(60'000, 'a'));
  CHECK((long_url.status == 414 || long_url.status == 404));
  // Half a request, and gone.
  {
    http_connection one{it.port()};
    one.send("POST /v1/sandbox/a/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
             "100\r\n\r\n{\"argv\"");
    one.abandon();
  }
  CHECK(it.sh("a", "echo alive").out == "alive\n");
}

TEST_CASE("a body of a million brackets is refused as JSON", "[http]") {
  const node it;
  for (const std::string& body :
       {std::string(1'000'000, '['), "{\"argv\":" + std::string(1'000'000, '['),
        "{\"a\":" + std::string(500'000, '[') + std::string(500'000, ']') + "}"}) {
    const auto got = it.ask("POST", "/v1/sandbox/a/exec", body);
    CHECK(got.status == 400);
    CHECK(got.complete);
  }
  CHECK(it.ask("GET", "/health").status == 200);
}

TEST_CASE("a body over the exec limit is refused before it is sent", "[http]") {
  const node it;
  const std::uint64_t limit = 16u << 20;
  http_connection one{it.port()};
  one.send("POST /v1/sandbox/a/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
           std::to_string(limit + 1) + "\r\n\r\n");
  const auto got = one.receive();
  CHECK(got.status == 413);
  CHECK(got.body == failure("payload too large: 16777217 bytes exceeds the 16777216-byte limit",
                            "payload_too_large"));
  // As large as it may be: the script is a comment.
  const auto script = "exit 6 #" + std::string(15u << 20, 'x');
  CHECK(it.exec("a", {"eval", script}).exit_code == 6);
}

TEST_CASE("100-continue, HEAD, pipelining and keep-alive work as HTTP has them", "[http]") {
  const node it;
  http_connection one{it.port()};
  const auto body = exec_body({"echo", "a"});
  one.send("POST /v1/sandbox/a/exec HTTP/1.1\r\nHost: localhost\r\nExpect: "
           "100-continue\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n");
  CHECK(one.receive().status == 100);
  one.send(body);
  CHECK(one.receive().status == 200);
  // The connection goes on, after errors as well.
  const auto next = [&](std::string_view method, std::string_view target,
                        std::string_view text = {}) {
    one.send(http_request(method, target, text));
    return one.receive(method == "HEAD").status;
  };
  CHECK(next("GET", "/nope") == 404);
  CHECK(next("POST", "/v1/sandbox/A/exec", "{}") == 400);
  CHECK(next("POST", "/v1/sandbox/a/exec", "{") == 400);
  CHECK(next("GET", "/v1/sandbox/a/file/workspace/missing") == 404);
  CHECK(next("HEAD", "/health") == 200);
  CHECK(next("PUT", "/v1/sandbox/a/file/workspace/f", "12345") == 200);
  CHECK(next("HEAD", "/v1/sandbox/a/file/workspace/f") == 200);
  CHECK(next("HEAD", "/v1/sandbox/a/file/workspace/missing") == 404);
  CHECK(next("DELETE", "/v1/sandbox/b") == 204);
  one.send(http_request("GET", "/health") + http_request("GET", "/nope") +
           http_request("GET", "/health"));
  CHECK(one.receive().status == 200);
  CHECK(one.receive().status == 404);
  CHECK(one.receive().body == R"({"ok":true})");
}

TEST_CASE("HEAD says what GET would, without the body", "[http]") {
  const node it;
  REQUIRE(it.ask("PUT", "/v1/sandbox/a/file/workspace/f", "12345").status == 200);
  const std::string execd = "/sandboxes/a/proxy/44772";
  for (const auto& target : std::vector<std::string>{"/",
                                                     "/health",
                                                     "/v1/openapi.json",
                                                     "/v1/openapi",
                                                     "/metrics",
                                                     "/v1/pool/stats",
                                                     "/nope",
                                                     "/v1/sandbox/A/running",
                                                     "/v1/sandbox/a/running",
                                                     "/v1/sandbox/a/file/workspace/f",
                                                     "/v1/sandbox/a/file/workspace/none",
                                                     "/v1/sandbox/a/network",
                                                     "/v1/sandbox/a/ports",
                                                     "/v1/sandbox/a/mounts",
                                                     "/v1/sandbox/a/pty",
                                                     "/v1/sandbox/a/port/9/ready?timeout_ms=200",
                                                     "/v1/sandbox/a/port/1/",
                                                     "/console/sandboxes",
                                                     "/v1/sandboxes",
                                                     "/v1/sandboxes/a",
                                                     "/v1/sandboxes/none",
                                                     execd + "/ping",
                                                     execd + "/files/download?path=f",
                                                     execd + "/files/download?path=f&limit=1",
                                                     execd + "/files/info?path=f",
                                                     execd + "/files/search?path=.&pattern=*",
                                                     execd + "/directories/list?path=.",
                                                     execd + "/command/status/none",
                                                     execd + "/metrics",
                                                     execd + "/nope"}) {
    CAPTURE(target);
    http_connection one{it.port()};
    one.send(http_request("GET", target));
    const auto whole = one.receive();
    one.send(http_request("HEAD", target) + http_request("GET", "/health"));
    auto head = one.receive(true);
    CHECK(head.status == whole.status);
    CHECK(
      head.fields["content-type"] ==
      (whole.fields.count("content-type") > 0 ? whole.fields.at("content-type") : std::string{}));
    CHECK(one.receive().body == R"({"ok":true})"); // Nothing was in between.
  }
}

TEST_CASE("who speaks as to a proxy is answered", "[http]") {
  const node it;
  REQUIRE(it.ask("PUT", "/v1/sandbox/a/file/workspace/f", "12345").status == 200);
  const auto get = [&](const std::string& target, const std::string& host) {
    http_connection one{it.port()};
    one.send("GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return one.receive();
  };
  const auto here = "http://localhost:" + std::to_string(it.port());
  CHECK(get(here + "/health", "localhost").body == R"({"ok":true})");
  CHECK(get(here + "/v1/sandbox/a/file/workspace/f", "localhost").body == "12345");
  CHECK(get(here + "/v1/sandbox/a/running?x=http://y/", "elsewhere.example").status == 200);
  CHECK(get("http://elsewhere.example/v1/pool/stats", "localhost").status == 403);
  CHECK(get("http://8000-a.localhost/health", "localhost").status == 502);
}

TEST_CASE("a server that has run out of descriptors survives and serves again", "[http]") {
  const node it{"state: {user: root}"}; // So that its limit can be set from outside.
  REQUIRE(it.exec("a", {"true"}).exit_code == 0);
  const auto used = open_files(it.pid());
  rlimit before{};
  ::prlimit(it.pid(), RLIMIT_NOFILE, nullptr, &before);
  const rlimit few{used + 30, before.rlim_max};
  REQUIRE(::prlimit(it.pid(), RLIMIT_NOFILE, &few, nullptr) == 0);
  {
    std::vector<std::unique_ptr<http_connection>> many;
    for (int i = 0; i < 60; ++i)
      many.push_back(std::make_unique<http_connection>(it.port()));
    CHECK(eventually([&] { return open_files(it.pid()) >= used + 30; }));
    // Those that were let in are served as far as that needs no descriptor; an exec needs some.
    many.front()->send(http_request("POST", "/v1/sandbox/a/exec", exec_body({"true"})));
    const auto hurt = many.front()->receive();
    CHECK(hurt.body.find(R"("exit_code":0)") == std::string::npos);
  }
  CHECK(it.exec("a", {"echo", "again"}).out == "again\n");
  CHECK(it.exec("b", {"echo", "new"}).out == "new\n");
  CHECK(eventually([&] { return open_files(it.pid()) < used + 25; }));
}

#include "base/id.hpp"
#include "http/server.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <zlib.h>

#include <regex>

using namespace insula;
using namespace insula::test;

namespace {

const std::string id = "abcdefghijklmnopqrstuvwxyz";
const std::string box = "/v1/sandbox/" + id;

const std::string bad_id = R"({"error":"Invalid sandbox ID format","code":"invalid_request"})";
const std::string no_key = R"({"error":"Unauthorized","code":"unauthorized"})";
const std::string no_route = R"({"error":"404 Not Found","code":"not_found"})";

http::server_options with_key() {
  http::server_options options;
  options.api_key = "s3cret";
  return options;
}

void check(const answer& got, int status, const std::string& body,
           const std::string& type = "application/json") {
  CHECK(got.status == status);
  CHECK(got.body == body);
  CHECK(got.complete);
  CHECK(got.fields.at("content-type") == type);
}

} // namespace

TEST_CASE("health says ok, or what is missing", "[http][routes]") {
  house well;
  check(ask(well.port(), "GET", "/health"), 200, R"({"ok":true})");
  house ill{{}, [] { return std::vector<std::string>{"no spawner"}; }};
  check(ask(ill.port(), "GET", "/health"), 503, R"({"ok":false,"errors":["no spawner"]})");
}

TEST_CASE("creating a sandbox issues an id and starts nothing, whatever the body",
          "[http][routes]") {
  house h;
  const auto first = ask(h.port(), "POST", "/v1/sandbox");
  const auto second = ask(h.port(), "POST", "/v1/sandbox", "{broken");
  const auto third = ask(h.port(), "POST", "/v1/sandbox", std::string(3 << 20, 'x'));
  for (const auto* got : {&first, &second, &third}) {
    CHECK(got->status == 200);
    REQUIRE(got->body.size() == 35);
    CHECK(got->body.substr(0, 7) == R"({"id":")");
    CHECK(sandbox_id::parse(got->body.substr(7, 26)));
  }
  CHECK(first.body != second.body);
  CHECK(h.heard().all().empty());
}

TEST_CASE("deleting goes to the directory, and answers without a body", "[http][routes]") {
  house h;
  client one{h.port()};
  one.send(request("DELETE", box) + request("GET", "/health"));
  const auto got = one.receive();
  CHECK(got.status == 204);
  CHECK(got.fields.count("content-length") == 0);
  CHECK(one.receive().status == 200); // Nothing was left over between the two.
  CHECK(h.heard().all() == std::vector<std::string>{"delete " + id});
}

TEST_CASE("running asks the sandbox itself", "[http][routes]") {
  house h;
  check(ask(h.port(), "GET", box + "/running"), 200, R"({"running":true})");
  h.plays().probe = false;
  check(ask(h.port(), "GET", box + "/running"), 200, R"({"running":false})");
}

TEST_CASE("a sandbox that does not answer the probe is not running", "[http][routes]") {
  http::server_options options;
  options.probe_patience = std::chrono::milliseconds{500};
  house h{options};
  h.plays().deaf_probe = true;
  h.plays().hold_find = true; // One that is not even found in time is another matter.
  check(ask(h.port(), "GET", box + "/running"), 502,
        R"({"error":"pool error: the sandbox was not ready in time","code":"pool_error"})");
  h.release();
  REQUIRE(h.heard().has("probed"));
  h.plays().hold_find = false;
  check(ask(h.port(), "GET", box + "/running"), 200, R"({"running":false})");
}

TEST_CASE("a sandbox that ended after it was found is looked for once more", "[http][routes]") {
  house h;
  h.plays().stale_once = true;
  check(ask(h.port(), "GET", box + "/running"), 200, R"({"running":true})");
  CHECK(h.heard().all() == std::vector<std::string>{"find " + id, "find " + id});
}

TEST_CASE("a sandbox that cannot be had is told by status", "[http][routes]") {
  house h;
  h.plays().find_error = error{errc::capacity_exceeded, "4/4"};
  const std::string full =
    R"({"error":"Cannot start container: instance limit reached (4/4). All container slots are in )"
    R"(use. Wait for existing containers to stop.","code":"capacity_exceeded"})";
  check(ask(h.port(), "GET", box + "/running"), 503, full);
  check(ask(h.port(), "POST", box + "/exec", R"({"argv":["a"]})"), 503, full);
  check(ask(h.port(), "GET", box + "/file/workspace/a"), 503, full);
  check(ask(h.port(), "PUT", box + "/file/workspace/a", "x"), 503, full);
  h.plays().find_error = error{errc::machine_full, "no room for a filter"};
  auto later = ask(h.port(), "POST", box + "/exec", R"({"argv":["a"]})");
  CHECK(later.fields["retry-after"] == "5");
  check(
    later, 503,
    R"({"error":"Cannot start container: no room for a filter. Wait for existing containers to )"
    R"(stop.","code":"capacity_exceeded"})");
  h.plays().find_error = error{errc::launch_failed, "no image"};
  const std::string broken = R"({"error":"pool error: no image","code":"pool_error"})";
  check(ask(h.port(), "GET", box + "/running"), 502, broken);
  check(ask(h.port(), "POST", box + "/exec", R"({"argv":["a"]})"), 502, broken);
  check(ask(h.port(), "GET", box + "/file/workspace/a"), 502, broken);
  check(ask(h.port(), "PUT", box + "/file/workspace/a", "x"), 502, broken);
}

TEST_CASE("a node that cannot remember says so, by status", "[http][routes]") {
  house h;
  h.plays().find_error = error{errc::disk_full, "writing: database or disk is full (13)"};
  const std::string full =
    R"({"error":"the node's disk is full, so nothing was done; it goes on by itself when there is )"
    R"(room again","code":"insufficient_storage"})";
  check(ask(h.port(), "GET", box + "/running"), 507, full);
  check(ask(h.port(), "POST", box + "/exec", R"({"argv":["a"]})"), 507, full);
  check(ask(h.port(), "PUT", box + "/file/workspace/a", "x"), 507, full);
  h.plays().find_error = error{errc::store_failed, "writing: disk I/O error (778)"};
  const std::string refused =
    R"({"error":"the node's disk does not take what has to be remembered, so nothing was done; it )"
    R"(goes on by itself when the disk does","code":"storage_unavailable"})";
  check(ask(h.port(), "GET", box + "/running"), 503, refused);
  check(ask(h.port(), "POST", box + "/exec", R"({"argv":["a"]})"), 503, refused);
  check(ask(h.port(), "GET", box + "/file/workspace/a"), 503, refused);
}

TEST_CASE("the id's format comes before the key, on every path and method", "[http][routes]") {
  house h{with_key()};
  for (const auto* path : {"/v1/sandbox/ABC", "/v1/sandbox/abc1/running", "/v1/sandbox/a%62/nope",
                           "/v1/sandbox/../x", "/v1/sandbox//running", "/v1/sandbox/a-b/file/x"})
    for (const auto* method : {"GET", "POST", "DELETE", "PATCH", "OPTIONS"})
      check(ask(h.port(), method, path), 400, bad_id);
  check(ask(h.port(), "GET", "/v1/sandbox/" + std::string(129, 'a') + "/running"), 400, bad_id);
  check(ask(h.port(), "GET", "/v1/sandbox/" + std::string(128, 'a') + "/running"), 401, no_key);
}

TEST_CASE("without a key, web pages are kept away from everything but health", "[http][routes]") {
  http::server_options options;
  options.allowed_hosts = {"insula.example"};
  house h{options};
  const auto from = [&](const house& to, const std::string& host, const std::string& fields,
                        const std::string& path = box + "/running") {
    client one{to.port()};
    one.send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n");
    return one.receive();
  };
  const std::string evil = "Origin: https://evil.example\r\n";
  const std::string foreign_page =
    R"({"error":"Without an API key, web pages of another origin are refused",)"
    R"("code":"invalid_request"})";
  const std::string foreign_name =
    R"({"error":"Without an API key, Host must be localhost, an IP address or one of )"
    R"(server.allowed_hosts","code":"invalid_request"})";
  check(from(h, "localhost:8787", evil), 403, foreign_page);
  check(from(h, "localhost:8787", "Origin: null\r\n"), 403, foreign_page);
  check(from(h, "evil.example", ""), 403, foreign_name);
  check(from(h, "evil.example", evil), 403, foreign_name);
  check(ask(h.port(), "POST", box + "/exec", R"({"argv":["a"]})", evil), 403, foreign_page);
  check(ask(h.port(), "PUT", box + "/file/workspace/a", "x", evil), 403, foreign_page);
  check(from(h, "localhost", evil, "/v1/openapi.json"), 403, foreign_page);
  CHECK(h.heard().all().empty());
  CHECK(from(h, "evil.example", evil, "/health").status == 200);
  CHECK(from(h, "localhost:8787", "Origin: http://localhost:8787\r\n").status == 200);
  CHECK(from(h, "insula.example", "Origin: https://insula.example\r\n").status == 200);
  CHECK(from(h, "10.0.0.1:80", "").status == 200);
  house closed{with_key()};
  CHECK(from(closed, "evil.example", evil + "Authorization: Bearer s3cret\r\n").status == 200);
  check(from(closed, "evil.example", evil), 401, no_key);
}

TEST_CASE("the key comes before everything else below the sandboxes", "[http][routes]") {
  house h{with_key()};
  check(ask(h.port(), "POST", "/v1/sandbox"), 401, no_key);
  check(ask(h.port(), "GET", "/v1/sandbox/"), 401, no_key);
  check(ask(h.port(), "GET", box + "/nope"), 401, no_key);
  check(ask(h.port(), "POST", box + "/exec", "{broken"), 401, no_key);
  check(ask(h.port(), "PUT", box + "/file/../etc", "x"), 401, no_key);
  check(ask(h.port(), "GET", box + "/running?token=s3cret"), 401, no_key);
  check(ask(h.port(), "GET", "/v1/pool/stats"), 401, no_key);
  CHECK(h.heard().all().empty());
  const std::string key = "Authorization: bearer s3cret\r\n";
  CHECK(ask(h.port(), "GET", box + "/running", {}, key).status == 200);
  check(ask(h.port(), "GET", box + "/nope", {}, key), 404, no_route);
  check(ask(h.port(), "GET", "/v1/sandbox/", {}, key), 404, no_route);
  CHECK(ask(h.port(), "GET", "/health").status == 200);
}

TEST_CASE("unknown paths and methods are 404 as JSON, and name the methods that there are",
          "[http][routes]") {
  house h{with_key()};
  for (const auto* path :
       {"/console", "/console/", "/v1/nope", "/v1", "/nope?x", "/health/", "//health"})
    check(ask(h.port(), "GET", path), 404, no_route);
  house open;
  for (const auto* path : {"/running/", "/exec/", "/nope"})
    check(ask(open.port(), "GET", box + path), 404, no_route);
  const auto takes = [&](std::string_view method, const std::string& path,
                         const std::string& methods) {
    CAPTURE(method, path);
    const auto got = ask(open.port(), method, path);
    check(got, 404,
          R"({"error":"404 Not Found: this path takes )" + methods + R"(","code":"not_found"})");
    CHECK(got.fields.at("allow") == methods);
  };
  takes("PATCH", "/health", "GET, HEAD");
  takes("OPTIONS", "/v1/sandbox", "POST");
  takes("GET", box + "/exec", "POST");
  takes("DELETE", box + "/file/workspace/x", "GET, HEAD, PUT");
  takes("POST", "/", "GET, HEAD");
  takes("GET", "/console/sign-in", "POST");
}

TEST_CASE("OpenSandbox's clients read a 404 in their own words", "[http][routes][opensandbox]") {
  house h;
  for (const std::string prefix : {"", "/v1"}) {
    for (const std::string path :
         {"/sandboxes/abc/nope", "/snapshots/a/b", "/sandboxes/abc/proxy/18080/nope",
          "/sandboxes/abc/proxy/44772/nope"}) {
      CAPTURE(prefix, path);
      const auto got = ask(h.port(), "GET", prefix + path);
      CHECK(got.status == 404);
      CHECK(got.fields.at("content-type").starts_with("application/json"));
      CHECK(got.body == R"({"code":"GENERAL::NOT_FOUND","message":"there is no such route"})");
    }
    const auto other = ask(h.port(), "PUT", prefix + "/sandboxes");
    CHECK(other.status == 404);
    CHECK(other.body ==
          R"({"code":"GENERAL::NOT_FOUND","message":"this path takes GET, HEAD, POST"})");
    CHECK(other.fields.at("allow") == "GET, HEAD, POST");
    for (const std::string port : {"0", "65536", "x", "080"})
      for (const std::string rest : {"", "/", "/a"}) {
        const auto got = ask(h.port(), "POST", prefix + "/sandboxes/abc/proxy/" + port + rest);
        CHECK(got.status == 400);
        CHECK(got.body ==
              R"({"code":"DOCKER::INVALID_PORT","message":"the port must be from 1 to 65535"})");
      }
  }
}

TEST_CASE("what is Insula's alone says what an id is, and which ports there are",
          "[http][routes]") {
  house h;
  const auto refusal_of = [&](std::string_view method, const std::string& path) {
    const auto got = ask(h.port(), method, "/v1/sandbox/a_1" + path);
    CHECK(got.status == 400);
    return got.body;
  };
  const std::string brief = R"({"error":"Invalid sandbox ID format","code":"invalid_request"})";
  const std::string whole =
    R"({"error":"Invalid sandbox ID format: an id is 1 to 128 characters of a-z and 2-7",)"
    R"("code":"invalid_request"})";
  for (const auto& [method, path] :
       {std::pair{"GET", "/network"}, std::pair{"PUT", "/network"}, std::pair{"GET", "/ports"},
        std::pair{"GET", "/port/80/ready"}, std::pair{"POST", "/preview"},
        std::pair{"GET", "/mounts"}, std::pair{"PUT", "/port/80/x"}}) {
    CAPTURE(method, path);
    CHECK(refusal_of(method, path) == whole);
  }
  // The bridge's contract has these words for its own.
  for (const auto& [method, path] : {std::pair{"GET", "/running"}, std::pair{"POST", "/exec"},
                                     std::pair{"DELETE", ""}, std::pair{"PUT", "/file/workspace/x"},
                                     std::pair{"POST", "/mount"}, std::pair{"GET", "/nope"}}) {
    CAPTURE(method, path);
    CHECK(refusal_of(method, path) == brief);
  }
  for (const std::string port : {"0", "65536", "x", "080"})
    for (const auto* method : {"GET", "POST", "OPTIONS"})
      check(ask(h.port(), method, box + "/port/" + port + "/a"), 400,
            R"({"error":"the port must be from 1 to 65535","code":"invalid_request"})");
}

TEST_CASE("a browser without the key gets a page on which it can be typed", "[http][routes]") {
  house h{with_key()};
  const std::string browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
  for (const auto* path :
       {"/v1/openapi", "/v1/openapi.html", "/v1/openapi.json", "/v1/openapi?token=wrong"}) {
    CAPTURE(path);
    const auto got = ask(h.port(), "GET", path, {}, browser);
    CHECK(got.status == 401);
    CHECK(got.fields.at("content-type") == "text/html; charset=utf-8");
    CHECK(got.fields.at("cache-control") == "no-store");
    CHECK(got.fields.count("content-security-policy") == 1);
    CHECK(got.body == ask(h.port(), "GET", "/").body);
    check(ask(h.port(), "GET", path, {}, "Accept: */*\r\n"), 401, no_key);
  }
  CHECK(ask(h.port(), "GET", "/v1/openapi", {}, browser + "Accept-Encoding: gzip\r\n")
          .fields.at("content-encoding") == "gzip");
  CHECK(ask(h.port(), "GET", "/v1/openapi?token=s3cret", {}, browser).status == 200);
  // What is no page says so as ever.
  for (const auto* path : {"/v1/sandbox/abc/running", "/v1/pool/stats", "/metrics", "/v1/openapi/x",
                           "/console/sandboxes"})
    check(ask(h.port(), "GET", path, {}, browser), 401, no_key);
  CHECK(ask(h.port(), "GET", "/v1/sandboxes", {}, browser).body ==
        R"({"code":"MISSING_API_KEY","message":"OPEN-SANDBOX-API-KEY is missing."})");
}

TEST_CASE("without a key, links from other sites lead to the pages and to nothing else",
          "[http][routes]") {
  house h;
  const std::string by_link = "Sec-Fetch-Site: cross-site\r\n";
  for (const auto* path : {"/", "/v1/openapi", "/v1/openapi.html"})
    CHECK(ask(h.port(), "GET", path, {}, by_link).status == 200);
  for (const auto* path : {"/v1/openapi.json", "/console/sandboxes", "/v1/sandboxes", "/metrics"})
    CHECK(ask(h.port(), "GET", path, {}, by_link).status == 403);
}

TEST_CASE("the document can be had with a token in the query", "[http][routes]") {
  house h{with_key()};
  check(ask(h.port(), "GET", "/v1/openapi.json"), 401, no_key);
  check(ask(h.port(), "GET", "/v1/openapi.json?token=wrong"), 401, no_key);
  check(ask(h.port(), "GET", "/v1/openapi.json", {}, "Authorization: bearer s3cret\r\n"), 401,
        no_key);
  check(ask(h.port(), "GET", "/v1/openapi.json?token=s3%63ret"), 200, http::openapi_document());
  check(ask(h.port(), "GET", "/v1/openapi.json", {}, "Authorization: Bearer s3cret\r\n"), 200,
        http::openapi_document());
}

namespace {

/// What a `gzip` program would make of it.
std::string gunzipped(std::string_view file) {
  std::string text(4 << 20, '\0');
  z_stream stream{};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(file.data()));
  stream.avail_in = static_cast<uInt>(file.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  REQUIRE(inflateInit2(&stream, MAX_WBITS + 16) == Z_OK); // Checks the CRC and the size too.
  CHECK(inflate(&stream, Z_FINISH) == Z_STREAM_END);
  CHECK(stream.avail_in == 0);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

} // namespace

TEST_CASE("the page can be had under both names, with the key or the token", "[http][routes]") {
  house h{with_key()};
  for (const std::string path : {"/v1/openapi", "/v1/openapi.html"}) {
    check(ask(h.port(), "GET", path), 401, no_key);
    check(ask(h.port(), "GET", path + "?token=wrong"), 401, no_key);
    for (const auto& got : {ask(h.port(), "GET", path + "?token=s3cret"),
                            ask(h.port(), "GET", path, {}, "Authorization: Bearer s3cret\r\n")}) {
      CHECK(got.status == 200);
      CHECK(got.fields.at("content-type") == "text/html; charset=utf-8");
      CHECK(got.fields.count("content-encoding") == 0);
      CHECK(got.fields.at("vary") == "Accept-Encoding");
      CHECK(got.complete);
      CHECK(got.body.rfind("<!doctype html>", 0) == 0);
      CHECK(got.body.find("s3cret") == std::string::npos);
      CHECK(got.body.find(http::openapi_document()) != std::string::npos); // It has no '<'.
    }
  }
  CHECK(ask(h.port(), "POST", "/v1/openapi?token=s3cret").status == 404);
}

TEST_CASE("the page is compressed for who takes that, and no other answer is", "[http][routes]") {
  house h;
  const auto plain = ask(h.port(), "GET", "/v1/openapi");
  const auto small = ask(h.port(), "GET", "/v1/openapi", {}, "Accept-Encoding: br, gzip\r\n");
  CHECK(small.fields.at("content-encoding") == "gzip");
  CHECK(small.body.size() < plain.body.size() / 3);
  CHECK(gunzipped(small.body) == plain.body);
  const auto document = ask(h.port(), "GET", "/v1/openapi.json", {}, "Accept-Encoding: gzip\r\n");
  CHECK(document.fields.count("content-encoding") == 0);
}

TEST_CASE("HEAD of the page is its header", "[http][routes]") {
  house h;
  client one{h.port()};
  one.send(request("HEAD", "/v1/openapi", {}, "Accept-Encoding: gzip\r\n") +
           request("GET", "/health"));
  const auto got = one.receive(true);
  CHECK(got.status == 200);
  CHECK(got.fields.at("content-encoding") == "gzip");
  CHECK(std::stoul(got.fields.at("content-length")) > 100'000);
  CHECK(one.receive().body == R"({"ok":true})");
}

TEST_CASE("the page may run its own scripts, ask its own node, and nothing else",
          "[http][routes]") {
  house h;
  const auto got = ask(h.port(), "GET", "/v1/openapi");
  const auto& policy = got.fields.at("content-security-policy");
  const std::regex strict{
    "default-src 'none'; script-src( 'sha256-[A-Za-z0-9+/]{43}='){2}; style-src "
    "'sha256-[A-Za-z0-9+/]{43}='; img-src data: blob:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"};
  CAPTURE(policy);
  CHECK(std::regex_match(policy, strict));
  CHECK(got.fields.at("referrer-policy") == "no-referrer"); // The address may have the key in it.
  CHECK(got.fields.at("cache-control") == "no-store");
  CHECK(got.fields.at("x-content-type-options") == "nosniff");
}

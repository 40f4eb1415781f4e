#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

const std::string no_key = R"({"error":"Unauthorized","code":"unauthorized"})";

} // namespace

TEST_CASE("12.2 stats as the contract writes them", "[http][pool]") {
  house h;
  h.plays().pool = {1, 2, 30, {1, 10s, 5}};
  const auto got = ask(h.port(), "GET", "/v1/pool/stats");
  CHECK(got.status == 200);
  CHECK(
    got.body ==
    R"({"warm":1,"assigned":2,"total":3,"config":{"warmTarget":1,"refreshInterval":10000,"maxInstances":30,"scaleBatchSize":5},"maxInstances":30})");
  CHECK(got.fields.at("content-type") == "application/json");
}

TEST_CASE("12.3 prime and shutdown-prewarmed ignore their bodies", "[http][pool]") {
  house h;
  for (const std::string body : {"", "{broken", R"({"target":100})"}) {
    CHECK(ask(h.port(), "POST", "/v1/pool/prime", body).body == R"({"ok":true})");
    CHECK(ask(h.port(), "POST", "/v1/pool/shutdown-prewarmed", body).body == R"({"ok":true})");
  }
  CHECK(h.heard().has("pool prime"));
  CHECK(h.heard().has("pool empty"));
}

TEST_CASE("a pool that cannot is a pool error", "[http][pool]") {
  house h;
  h.plays().pool_error = error{errc::sandbox_not_running, "the node is going down"};
  const auto got = ask(h.port(), "POST", "/v1/pool/shutdown-prewarmed");
  CHECK(got.status == 502);
  CHECK(got.body == R"({"error":"pool error: the node is going down","code":"pool_error"})");
}

TEST_CASE("the pool's routes want the key, spelled Bearer", "[http][pool]") {
  http::server_options options;
  options.api_key = "s3cret";
  house h{options};
  const std::vector<std::pair<std::string, std::string>> routes{
    {"GET", "/v1/pool/stats"},
    {"POST", "/v1/pool/prime"},
    {"POST", "/v1/pool/shutdown-prewarmed"},
    {"GET", "/v1/pool/unknown"}};
  for (const auto& [method, path] : routes) {
    CAPTURE(path);
    for (const std::string field :
         {"", "Authorization: Bearer wrong\r\n", "Authorization: bearer s3cret\r\n",
          "Authorization: s3cret\r\n"}) {
      const auto got = ask(h.port(), method, path, "", field);
      CHECK(got.status == 401);
      CHECK(got.body == no_key);
    }
    const auto got = ask(h.port(), method, path, "", "Authorization: Bearer s3cret\r\n");
    CHECK(got.status == (path == "/v1/pool/unknown" ? 404 : 200));
  }
}

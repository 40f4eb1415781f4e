// The routes at which the public keys are.
#include "http/oidc/issuer.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/jwt_check.hpp"
#include "tests/support/manual_clock.hpp"

using namespace insula;
using namespace insula::test;

namespace {

struct published_house {
  manual_clock time;
  std::shared_ptr<http::oidc::issuer> from;
  std::unique_ptr<house> is;

  explicit published_house(const std::string& key) {
    auto keys = http::oidc::key_set::make(1'700'000'000);
    REQUIRE(keys);
    from = std::make_shared<http::oidc::issuer>(http::oidc::issuer_settings{}, *keys, time);
    http::server_options options;
    options.api_key = key;
    options.issuer = from;
    is = std::make_unique<house>(std::move(options));
  }
};

const std::string keys_path = "/oidc/insula/.well-known/jwks";
const std::string configuration_path = "/oidc/insula/.well-known/openid-configuration";

} // namespace

TEST_CASE("public keys are there without a key, and verify what is signed", "[http][oidc]") {
  const published_house h{GENERATE("", "the-key-of-this-node")};
  const auto token =
    h.from->sign({{"team_id", "t"}, {"project_id", "p"}, {"sandbox_id", "s"}}, "https://a.example");
  REQUIRE(token);
  const auto got = ask(h.is->port(), "GET", keys_path);
  CHECK(got.status == 200);
  CHECK(got.fields.at("content-type") == "application/json");
  CHECK(got.fields.at("cache-control") == "public, max-age=300");
  CHECK(got.body == h.from->published_keys());
  CHECK(is_signed_by(got.body, *token));
  const auto about = json_in(ask(h.is->port(), "GET", configuration_path).body);
  CHECK(about["issuer"] == "https://oidc.vercel.com/insula");
  CHECK(about["jwks_uri"] == "https://oidc.vercel.com/insula/.well-known/jwks");
  CHECK(about["id_token_signing_alg_values_supported"][0] == "RS256");
  // Keys that are taken anew are there at once.
  auto next = h.from->keys().rotated(1'700'000'000, std::chrono::hours{1});
  REQUIRE(next);
  h.from->take(std::move(*next));
  CHECK(json_in(ask(h.is->port(), "GET", keys_path).body)["keys"].Size() == 2);
}

TEST_CASE("verifiers find public keys by any name of the server, and from any page",
          "[http][oidc]") {
  const published_house h{""};
  client c{h.is->port()};
  c.send("GET " + keys_path +
         " HTTP/1.1\r\nHost: insula.example\r\nOrigin: https://other.example\r\n"
         "Sec-Fetch-Site: cross-site\r\n\r\n");
  CHECK(c.receive().status == 200);
  // This is for them alone.
  c.send("GET /v1/openapi.json HTTP/1.1\r\nHost: insula.example\r\n\r\n");
  CHECK(c.receive().status == 403);
}

TEST_CASE("HEAD is answered for public keys as GET is, other methods are not", "[http][oidc]") {
  const published_house h{"the-key-of-this-node"};
  client c{h.is->port()};
  c.send("HEAD " + keys_path + " HTTP/1.1\r\nHost: a\r\n\r\n");
  const auto got = c.receive(true);
  CHECK(got.status == 200);
  CHECK(got.fields.at("content-length") == std::to_string(h.from->published_keys().size()));
  CHECK(got.body.empty());
  for (const auto* method : {"POST", "PUT", "DELETE"}) {
    CAPTURE(method);
    CHECK(ask(h.is->port(), method, keys_path, "{}").status == 404);
  }
  for (const auto* path : {"/oidc", "/oidc/", "/oidc/insula", "/oidc/insula/.well-known",
                           "/oidc/other/.well-known/jwks", "/oidc/insula/.well-known/jwks/"}) {
    CAPTURE(path);
    CHECK(ask(h.is->port(), "GET", path).status == 404);
  }
}

TEST_CASE("a server without an issuer has no public keys", "[http][oidc]") {
  house h;
  CHECK(ask(h.port(), "GET", keys_path).status == 404);
}

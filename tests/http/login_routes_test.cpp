// `sandbox login`: what its client asks for, and the page on which it is confirmed.
#include "http/vercel/device_codes.hpp"
#include "http/vercel/tokens.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <rapidjson/document.h>

#include <ctime>

using namespace insula;
using namespace insula::test;

namespace {

const std::string main_key = "the-main-key-of-this-node", named_key = "the-key-for-one-project";
const std::string device_grant =
  "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code";
const std::string sign_in = "/oauth/nodes/here/sign-in";

http::server_options with_key() {
  http::server_options options;
  options.api_key = main_key;
  options.named_keys = {{"web", named_key, {"vercel"}, {}, {}}};
  return options;
}

std::string bearer(const std::string& key) {
  return "Authorization: Bearer " + key + "\r\n";
}

rapidjson::Document parsed(const answer& got) {
  rapidjson::Document document;
  document.Parse(got.body.c_str());
  REQUIRE(document.IsObject());
  return document;
}

std::string member(const answer& got, const char* name) {
  const auto document = parsed(got);
  REQUIRE(document.HasMember(name));
  return document[name].GetString();
}

struct command_line {
  explicit command_line(const house& at)
      : port(at.port()) {
    const auto got = ask(port, "POST", "/oauth/nodes/here/codes", "client_id=cl_1&scope=openid");
    REQUIRE(got.status == 200);
    CHECK(got.fields.at("cache-control") == "no-store");
    device = member(got, "device_code");
    user = member(got, "user_code");
    page = member(got, "verification_uri");
    whole = member(got, "verification_uri_complete");
    const auto all = parsed(got);
    CHECK(all["expires_in"].GetInt() == 900);
    CHECK(all["interval"].GetInt() == 5);
  }
  answer poll() const {
    return ask(port, "POST", "/oauth/nodes/here/token",
               "client_id=cl_1&" + device_grant + "&device_code=" + device);
  }
  answer decide(const std::string& rest, const std::string& fields) const {
    return ask(port, "POST", sign_in, R"({"user_code":")" + user + R"(",)" + rest + "}", fields);
  }

  std::uint16_t port;
  std::string device, user, page, whole;
};

} // namespace

TEST_CASE("login: the command line gets a token of one project once it is confirmed",
          "[http][login]") {
  const auto options = with_key();
  house h{options};
  const auto found = ask(h.port(), "GET", "/.well-known/openid-configuration");
  CHECK(found.status == 200);
  CHECK(member(found, "issuer") == "https://vercel.com");
  CHECK(member(found, "device_authorization_endpoint") ==
        "https://vercel.com/oauth/nodes/here/codes");
  CHECK(member(found, "token_endpoint") == "https://vercel.com/oauth/nodes/here/token");
  for (const auto* each : {"revocation_endpoint", "introspection_endpoint", "jwks_uri"})
    CHECK(member(found, each).starts_with("https://vercel.com/oauth/"));
  CHECK(ask(h.port(), "GET", "/oauth/jwks").body == R"({"keys":[]})");

  const command_line one{h};
  const std::string at = "http://localhost/device"; // As the client calls the node.
  CHECK(one.page == at);
  CHECK(one.whole == at + "?user_code=" + one.user);
  CHECK(one.poll().body == R"({"error":"authorization_pending"})");
  CHECK(one.poll().status == 400);

  const auto shown = ask(h.port(), "GET", sign_in + "?user_code=" + one.user, {}, bearer(main_key));
  CHECK(member(shown, "team") == "team_insula");
  CHECK(member(shown, "project") == "vercel-sandbox-default-project");
  CHECK(member(shown, "network").find("127.0.0.") == 0);

  CHECK(one.decide(R"("team":"me","project":"prj","days":2)", bearer(main_key)).status == 204);
  const auto granted = one.poll();
  CHECK(granted.status == 200);
  CHECK(granted.fields.at("cache-control") == "no-store");
  CHECK(member(granted, "token_type") == "Bearer");
  CHECK(parsed(granted)["expires_in"].GetInt() == 2 * 24 * 60 * 60);
  CHECK(member(one.poll(), "error") == "expired_token"); // Once.

  const auto token = member(granted, "access_token");
  const http::key_check key{options.api_key, options.named_keys};
  const auto now = static_cast<std::int64_t>(::time(nullptr));
  const auto scope = http::vercel::token_scope{"me", "prj"};
  CHECK(http::vercel::standing_of(key, token, now).allowed == scope);
  CHECK(http::vercel::standing_of(key, token, now + 2 * 24 * 60 * 60 - 60).allowed == scope);
  CHECK_FALSE(http::vercel::standing_of(key, token, now + 2 * 24 * 60 * 60 + 60).allowed);
  CHECK(ask(h.port(), "GET", "/v2/sandboxes?project=prj", {}, bearer(token)).status == 200);
  CHECK(ask(h.port(), "GET", "/v2/sandboxes?project=other", {}, bearer(token)).status == 404);

  const auto introspected = [&](const std::string& of) {
    return ask(h.port(), "POST", "/oauth/introspect", "token=" + of).body;
  };
  CHECK(introspected(token) == R"({"active":true,"client_id":"","session_id":"me/prj"})");
  CHECK(introspected("none") == R"({"active":false})");
  CHECK(member(ask(h.port(), "POST", "/oauth/revoke", "token=" + token), "error") ==
        "unsupported_token_type");
}

TEST_CASE("login: nobody confirms without the main key", "[http][login]") {
  house h{with_key()};
  const command_line one{h};
  const std::string grant = R"("team":"me","project":"prj","days":2)";
  CHECK(one.decide(grant, {}).status == 401);
  CHECK(one.decide(grant, bearer("wrong")).status == 401);
  CHECK(one.decide(grant, bearer(named_key)).status == 403);
  CHECK(ask(h.port(), "GET", sign_in + "?user_code=" + one.user).status == 401);
  CHECK(ask(h.port(), "GET", sign_in + "?user_code=" + one.user, {}, bearer(named_key)).status ==
        403);

  // A browser that is signed in does, from the node's own page alone.
  const auto host = "localhost:" + std::to_string(h.port());
  const auto browse = [&](const std::string& target, const std::string& origin,
                          const std::string& cookie, const std::string& body) {
    client to{h.port()};
    to.send("POST " + target + " HTTP/1.1\r\nHost: " + host + "\r\nOrigin: http://" + origin +
            "\r\n" + cookie + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return to.receive();
  };
  const auto signed_in = browse("/console/sign-in", host, {}, main_key);
  REQUIRE(signed_in.status == 204);
  const auto& field = signed_in.fields.at("set-cookie");
  const auto cookie = "Cookie: " + field.substr(0, field.find(';')) + "\r\n";
  const auto body = R"({"user_code":")" + one.user + R"(",)" + grant + "}";
  CHECK(browse(sign_in, "elsewhere.example", cookie, body).status == 401);
  CHECK(member(one.poll(), "error") == "authorization_pending");
  CHECK(browse(sign_in, host, cookie, body).status == 204);
  CHECK(one.poll().status == 200);
}

TEST_CASE("login: what is refused, wrong or too much is told", "[http][login]") {
  auto options = with_key();
  options.projects = {"web", "prj"};
  house h{options};
  const auto fields = bearer(main_key);
  const command_line one{h};
  CHECK(member(ask(h.port(), "GET", sign_in + "?user_code=" + one.user, {}, fields), "project") ==
        "web");
  for (const auto* rest :
       {R"("team":"","project":"prj","days":2)", R"("team":"me","days":2)",
        R"("team":"me","project":"prj")", R"("team":"me","project":"prj","days":0)",
        R"("team":"me","project":"prj","days":366)", R"("team":1,"project":"prj","days":1)"}) {
    CAPTURE(rest);
    CHECK(one.decide(rest, fields).status == 400);
  }
  CHECK(one.decide(R"("team":"me","project":"other","days":2)", fields).status == 404);
  CHECK(ask(h.port(), "POST", sign_in, R"({"user_code":"BCDF-GHJK","refuse":true})", fields).body ==
        R"({"error":{"code":"not_found","message":"No sign-in waits with this code."}})");
  CHECK(one.decide(R"("refuse":true)", fields).status == 204);
  CHECK(member(one.poll(), "error") == "access_denied");

  const auto token_with = [&](const std::string& form) {
    return member(ask(h.port(), "POST", "/oauth/nodes/here/token", form), "error");
  };
  CHECK(token_with("grant_type=refresh_token&refresh_token=x") == "invalid_grant");
  CHECK(token_with("grant_type=password") == "unsupported_grant_type");
  CHECK(token_with("") == "unsupported_grant_type");
  CHECK(token_with(device_grant + "&device_code=x") == "expired_token");
  CHECK(ask(h.port(), "POST", "/oauth/nodes/here/token", std::string(20'000, 'x')).status == 413);

  // What waits has a ceiling.
  int refused = 0;
  for (std::size_t i = 0; i < http::vercel::device_codes::most_of_network + 2; ++i) {
    const auto got = ask(h.port(), "POST", "/oauth/nodes/here/codes", "client_id=cl_1");
    if (got.status == 429) {
      ++refused;
      CHECK(member(got, "error") == "slow_down");
      CHECK(got.fields.at("retry-after") == "60");
    }
  }
  CHECK(refused == 2);
}

TEST_CASE("login: no page begins a sign-in", "[http][login]") {
  house h{with_key()};
  const auto begin = [&](const std::string& fields) {
    return ask(h.port(), "POST", "/oauth/nodes/here/codes", "client_id=cl_1", fields);
  };
  CHECK(begin("Origin: https://a.example\r\n").status == 403);
  CHECK(begin("Sec-Fetch-Site: same-origin\r\n").status == 403);
  // TLS may end in front of the node.
  CHECK(member(begin("X-Forwarded-Proto: https\r\n"), "verification_uri") ==
        "https://localhost/device");
}

TEST_CASE("login: another main key ends what waits, and what was confirmed with the one before",
          "[http][login]") {
  house h{with_key()};
  const command_line waits{h}, confirmed{h};
  CHECK(confirmed.decide(R"("team":"me","project":"prj","days":2)", bearer(main_key)).status ==
        204);
  const auto token = member(confirmed.poll(), "access_token");
  const auto get = [&](const std::string& with) {
    return ask(h.port(), "GET", "/v2/user", {}, bearer(with)).status;
  };
  CHECK(get(token) == 200);
  const std::string next = "another-main-key-of-this-test";
  REQUIRE(h.server().renew(next, {}, std::nullopt));
  CHECK(get(token) == 403);
  CHECK(waits.decide(R"("team":"me","project":"prj","days":2)", bearer(next)).status == 404);
  CHECK(member(waits.poll(), "error") == "expired_token");
}

TEST_CASE("login: its page is for everybody, loads nothing and is in no frame", "[http][login]") {
  house h{with_key()};
  const auto page = ask(h.port(), "GET", "/device?user_code=BCDF-GHJK");
  CHECK(page.status == 200);
  CHECK(page.body.find("BCDF") == std::string::npos);
  const auto& policy = page.fields.at("content-security-policy");
  for (const auto* part : {"default-src 'none'", "script-src 'sha256-", "style-src 'sha256-",
                           "connect-src 'self'", "frame-ancestors 'none'"})
    CHECK(policy.find(part) != std::string::npos);
  CHECK(page.fields.at("cache-control") == "no-store");
}

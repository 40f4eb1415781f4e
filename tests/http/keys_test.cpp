// Named keys: what each opens, in the words of each API.
#include "http/vercel/settings.hpp"
#include "http/vercel/tokens.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <ctime>

using namespace insula;
using namespace insula::test;

namespace {

const std::string main_key = "the-main-key-of-this-node", bridge_key = "the-key-for-the-bridge",
                  sandbox_key = "the-key-for-opensandbox", vercel_key = "the-key-for-one-project",
                  any_key = "the-key-for-every-api";

http::server_options with_keys() {
  http::server_options options;
  options.api_key = main_key;
  options.named_keys = {{"ci", bridge_key, {"bridge"}, {}, {}},
                        {"agents", sandbox_key, {"opensandbox"}, {}, {}},
                        {"web", vercel_key, {"vercel"}, {"me"}, {"prj"}},
                        {"all", any_key, {}, {}, {}}};
  return options;
}

std::string bearer(const std::string& key) {
  return "Authorization: Bearer " + key + "\r\n";
}

auto look_at(const house& h, const std::string& target, const std::string& fields) {
  return ask(h.port(), "GET", target, {}, fields);
}

listed_sandbox box(const std::string& name, const std::string& project) {
  http::vercel::settings is{project, name};
  listed_sandbox made;
  made.id = "abcdefghij";
  made.is.exists = true;
  made.is.metadata[http::vercel::metadata_api] = text_of(is);
  made.is.run.emplace();
  made.is.run->number = 1;
  return made;
}

http::key_check keys_of(const http::server_options& options) {
  return http::key_check{options.api_key, options.named_keys};
}

} // namespace

TEST_CASE("a named key opens the routes of its APIs, and is told so at others", "[http][keys]") {
  house h{with_keys()};
  const std::string running = "/v1/sandbox/abc/running";
  for (const auto& key : {main_key, bridge_key, any_key})
    CHECK(look_at(h, running, bearer(key)).status == 200);
  for (const auto& key : {sandbox_key, vercel_key}) {
    const auto got = look_at(h, running, bearer(key));
    CHECK(got.status == 403);
    CHECK(got.body == R"({"error":"The API key does not open this.","code":"forbidden"})");
  }
  CHECK(look_at(h, running, bearer("the-main-key-of-this-nodE")).status == 401);
  CHECK(look_at(h, running, {}).status == 401);
  // What is no route is told without saying more.
  CHECK(look_at(h, "/v1/sandbox/abc/nothing", bearer(bridge_key)).status == 404);
  // What it shows the sandbox is told, so that what it makes counts for it.
  REQUIRE(ask(h.port(), "POST", "/v1/sandbox/abc/exec", R"({"argv":["true"]})", bearer(bridge_key))
            .status == 200);
  CHECK(h.last_exec().context.key == "ci");
  REQUIRE(ask(h.port(), "POST", "/v1/sandbox/abc/exec", R"({"argv":["true"]})", bearer(main_key))
            .status == 200);
  CHECK(h.last_exec().context.key.empty());
  // A client cannot say it itself.
  REQUIRE(ask(h.port(), "POST", "/v1/sandbox/abc/exec", R"({"argv":["true"]})",
              bearer(main_key) + "Insula-Node-Key: ci\r\n")
            .status == 200);
  CHECK(h.last_exec().context.key.empty());
}

TEST_CASE("what is about the node needs the main key", "[http][keys]") {
  house h{with_keys()};
  for (const auto* target :
       {"/metrics", "/v1/pool/stats", "/v1/images", "/v1/cluster", "/console/sandboxes",
        "/console/sandboxes/abc/runs", "/console/nodes/n1/sandboxes"}) {
    CAPTURE(target);
    for (const auto& key : {bridge_key, sandbox_key, vercel_key, any_key})
      CHECK(look_at(h, target, bearer(key)).status == 403);
    CHECK(look_at(h, target, bearer(main_key)).status != 403);
    CHECK(look_at(h, target, bearer(main_key)).status != 401);
  }
  for (const auto* target : {"/v1/pool/prime", "/v1/pool/shutdown-prewarmed", "/v1/images/pull",
                             "/v1/cluster/drain/n1"}) {
    CAPTURE(target);
    CHECK(ask(h.port(), "POST", target, "{}", bearer(any_key)).status == 403);
  }
  CHECK(ask(h.port(), "DELETE", "/v1/images/host", {}, bearer(any_key)).status == 403);
  // The document is the bridge's, also with the key in the query.
  CHECK(look_at(h, "/v1/openapi.json", bearer(bridge_key)).status == 200);
  CHECK(look_at(h, "/v1/openapi.json?token=" + bridge_key, {}).status == 200);
  CHECK(look_at(h, "/v1/openapi.json?token=" + vercel_key, {}).status == 403);
  CHECK(look_at(h, "/health", {}).status == 200);
}

TEST_CASE("a listener for metrics that asks for the key asks for the main one", "[http][keys]") {
  auto options = with_keys();
  options.metrics = http::server_options::metrics_listener{"127.0.0.1", 0, true};
  house h{options};
  const auto port = h.server().metrics_port();
  CHECK(ask(port, "GET", "/metrics", {}, bearer(any_key)).status == 403);
  CHECK(ask(port, "GET", "/metrics", {}, bearer(main_key)).status == 200);
}

TEST_CASE("OpenSandbox's clients show a named key as the main one", "[http][keys]") {
  house h{with_keys()};
  for (const std::string field : {"OPEN-SANDBOX-API-KEY: ", "Authorization: Bearer "}) {
    CAPTURE(field);
    for (const auto* target : {"/v1/sandboxes", "/sandboxes/abc/proxy/44772/ping"}) {
      CAPTURE(target);
      const auto as_main = look_at(h, target, field + main_key + "\r\n").status;
      CHECK(as_main != 401);
      CHECK(look_at(h, target, field + sandbox_key + "\r\n").status == as_main);
      CHECK(look_at(h, target, field + any_key + "\r\n").status == as_main);
      CHECK(look_at(h, target, field + bridge_key + "\r\n").status == 403);
    }
  }
  const auto ping = "/sandboxes/abc/proxy/44772/ping";
  CHECK(look_at(h, ping, "X-EXECD-ACCESS-TOKEN: " + sandbox_key + "\r\n").status ==
        look_at(h, ping, "X-EXECD-ACCESS-TOKEN: " + main_key + "\r\n").status);
  CHECK(look_at(h, ping, "X-EXECD-ACCESS-TOKEN: " + vercel_key + "\r\n").status == 403);
  CHECK(look_at(h, ping, "X-EXECD-ACCESS-TOKEN: nothing\r\n").status == 401);
  CHECK(look_at(h, "/v1/sandboxes", "OPEN-SANDBOX-API-KEY: " + bridge_key + "\r\n").body ==
        R"({"code":"FORBIDDEN","message":"The API key does not open this."})");
}

TEST_CASE("Vercel: a named key reaches its teams and projects, and others are not there",
          "[http][keys][vercel]") {
  house h{with_keys()};
  h.plays().grouped = {box("one", "prj"), box("two", "other")};
  const auto list = [&](const std::string& query, const std::string& key) {
    return look_at(h, "/v2/sandboxes?" + query, bearer(key));
  };
  CHECK(list("project=prj&teamId=me", vercel_key).body.find(R"("name":"one")") !=
        std::string::npos);
  CHECK(list("project=other&teamId=me", vercel_key).status == 404);
  CHECK(list("project=prj&teamId=they", vercel_key).status == 404);
  CHECK(list("project=prj", vercel_key).status == 404); // It has teams, and this names none.
  for (const auto& key : {main_key, any_key})
    CHECK(list("project=other", key).status == 200);
  const auto refused = list("project=prj", bridge_key);
  CHECK(refused.status == 403);
  CHECK(refused.body ==
        R"({"error":{"code":"forbidden","message":"The API key does not open this."}})");
  const auto fields = bearer(vercel_key);
  for (const auto* method : {"GET", "PATCH", "DELETE"})
    CHECK(
      ask(h.port(), method, "/v2/sandboxes/two?projectId=other&teamId=me", "{}", fields).status ==
      404);
  CHECK(look_at(h, "/v2/sandboxes/sessions?project=other&name=two&teamId=me", fields).status ==
        404);
  CHECK(ask(h.port(), "POST", "/v3/sandboxes?teamId=me", R"({"projectId":"other","name":"box"})",
            fields)
          .status == 404);
  for (const auto& each : h.heard().all())
    CHECK(each.find("delete") == std::string::npos);
}

TEST_CASE("Vercel: tokens under a named key are good for what both may, and end with the key",
          "[http][keys][vercel]") {
  const auto options = with_keys();
  house h{options};
  h.plays().grouped = {box("one", "prj"), box("two", "other")};
  const auto now = static_cast<std::int64_t>(::time(nullptr));
  const auto made = [&](const std::string& team, const std::string& project,
                        const std::string& key) {
    return http::vercel::make_access_token(keys_of(options), {team, project, key}, now, now + 600);
  };
  const auto status = [&](const std::string& token, const std::string& project) {
    return look_at(h, "/v2/sandboxes?project=" + project, bearer(token)).status;
  };
  CHECK(status(made("me", "prj", "web"), "prj") == 200);
  CHECK(status(made("me", "prj", "web"), "other") == 404);
  CHECK(status(made("me", "other", "web"), "other") == 404); // The key does not reach it.
  CHECK(status(made("they", "prj", "web"), "prj") == 404);
  CHECK(status(made("me", "other", "all"), "other") == 200);
  CHECK(status(made("me", "prj", "ci"), "prj") == 403);
  CHECK(status(made("me", "prj", ""), "prj") == 200);
  // One that names a key and is signed by another, or by none.
  const http::key_check forged{main_key, {{"web", any_key, {}, {}, {}}}};
  CHECK(status(http::vercel::make_access_token(forged, {"me", "prj", "web"}, now, now + 600),
               "prj") == 403);
  const auto unknown = http::key_check{main_key, {{"no", any_key, {}, {}, {}}}};
  CHECK(status(http::vercel::make_access_token(unknown, {"me", "prj", "no"}, now, now + 600),
               "prj") == 403);
  CHECK(status(http::vercel::make_identity_token(http::key_check{main_key}, {"me", "prj", "no"},
                                                 now, now + 600),
               "prj") == 403);
  // Other APIs take no token.
  CHECK(look_at(h, "/v1/sandbox/abc/running", bearer(made("me", "other", "all"))).status == 401);
  // Without its key it is over.
  auto fewer = options.named_keys;
  fewer.erase(fewer.begin() + 2);
  REQUIRE(h.server().renew(main_key, fewer, std::nullopt));
  CHECK(status(made("me", "prj", "web"), "prj") == 403);
  CHECK(status(vercel_key, "prj") == 403);
  CHECK(status(made("me", "prj", ""), "prj") == 200);
}

TEST_CASE("Vercel: a sandbox of another API has its id for a name, for keys of all APIs",
          "[http][keys][vercel]") {
  auto options = with_keys();
  options.named_keys.push_back({"only", "the-key-for-all-projects", {"vercel"}, {}, {}});
  if (GENERATE(false, true))
    options.projects = {"prj", "web"}; // The main key is for all of them.
  house h{options};
  const std::string id(26, 'a');
  const std::string session = "/v2/sandboxes/sessions/sbx_" + id + "0";
  const std::string name = "/v2/sandboxes/sbx_" + id;
  const std::string by_name = name + "?projectId=prj&teamId=me";
  const std::string sessions = "/v2/sandboxes/sessions?project=prj&teamId=me&name=sbx_" + id;
  auto& is = h.plays().description;
  is.exists = true;
  is.image = "host";
  is.memory_limit_bytes = 512u << 20;
  is.created_ms = 1000;
  const auto has_heard = [&](const std::string& what) {
    const auto all = h.heard().all();
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& each) { return each.starts_with(what); });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
  };

  for (const auto& key : {main_key, any_key}) {
    for (const auto& target : {by_name, session, sessions})
      CHECK(look_at(h, target, bearer(key)).status == 200);
    CHECK(look_at(h, session + "/cmd", bearer(key)).status == 200);
  }
  CHECK(h.heard().has("find_commands 0"));
  const auto shown = look_at(h, by_name + "&resume=true", bearer(main_key)).body;
  for (const auto& part : {R"("name":"sbx_)" + id + '"', R"("currentSessionId":"sbx_)" + id + "0\"",
                           std::string{R"("status":"running")"},
                           std::string{R"("cwd":"/workspace")"}, std::string{R"("memory":512)"},
                           std::string{R"("image":"host")"}, std::string{R"("createdAt":1000)"}})
    CHECK(has(shown, part));
  CHECK_FALSE(has(shown, "networkPolicy"));
  CHECK_FALSE(has(shown, "expiresAt"));
  CHECK_FALSE(has_heard("begin "));
  is.paused = true;
  CHECK(has(look_at(h, by_name + "&resume=true", bearer(main_key)).body, R"("status":"stopped")"));
  is.paused = false;
  is.expires_ms = 5000;
  CHECK(has(look_at(h, by_name, bearer(main_key)).body, R"("expiresAt":5000)"));

  INFO("its settings and its end are the other API's");
  const auto told = [&](const char* method, const std::string& target, const std::string& body) {
    return ask(h.port(), method, target, body, bearer(main_key));
  };
  for (const auto& got :
       {told("PATCH", by_name, "{}"), told("POST", name + "/fork?projectId=prj", "{}"),
        told("POST", session + "/stop", "{}"), told("POST", session + "/snapshot", "{}"),
        told("POST", session + "/extend-timeout", R"({"duration":1000})"),
        told("POST", session + "/network-policy", R"({"mode":"deny-all"})")}) {
    CAPTURE(got.body);
    CHECK(got.status == 409);
    CHECK(has(got.body, R"("code":"conflict")"));
  }
  CHECK(told("POST", "/v3/sandboxes", R"({"projectId":"prj","name":"sbx_)" + id + "\"}").status ==
        400);

  INFO("keys and tokens for projects, and for this API alone, reach none");
  const auto now = static_cast<std::int64_t>(::time(nullptr));
  const auto token =
    http::vercel::make_access_token(keys_of(options), {"me", "prj", ""}, now, now + 600);
  for (const auto& key : {vercel_key, token, std::string{"the-key-for-all-projects"}}) {
    for (const auto& target : {by_name, session, sessions, session + "/cmd"})
      CHECK(look_at(h, target, bearer(key)).status == 404);
    for (const auto* rest : {"/cmd", "/interactive", "/fs/read", "/fs/mkdir"})
      CHECK(ask(h.port(), "POST", session + rest, R"({"command":"ls","path":"/"})", bearer(key))
              .status == 404);
    CHECK(ask(h.port(), "POST", session + "/fs/write", "\x1f\x8b",
              bearer(key) + "Content-Type: application/gzip\r\n")
            .status == 404);
    CHECK(ask(h.port(), "DELETE", by_name, {}, bearer(key)).status == 404);
  }

  INFO("what is this API's is found by its own name, and by its session");
  http::vercel::settings mine{"prj", "box"};
  is.metadata[http::vercel::metadata_api] = text_of(mine);
  is.run.emplace();
  is.run->number = 1;
  is.run->state = run_state::running;
  for (const auto& target : {by_name, session, sessions, session + "/cmd"})
    CHECK(look_at(h, target, bearer(main_key)).status == 404);
  CHECK(told("DELETE", by_name + "&deleteOrphanSnapshots=true", "").status == 404);
  CHECK_FALSE(has_heard("list_snapshots"));
  is.exists = false;
  is.metadata.clear();
  is.run.reset();
  for (const auto& target : {by_name, session, sessions, session + "/cmd"})
    CHECK(look_at(h, target, bearer(main_key)).status == 404);
}

TEST_CASE("Vercel: the command line finds a team and a project for its token",
          "[http][keys][vercel]") {
  auto options = with_keys();
  options.named_keys.push_back({"duo", "the-key-for-two-teams", {"vercel"}, {"us", "them"}, {}});
  house h{options};
  const auto now = static_cast<std::int64_t>(::time(nullptr));
  const auto token = [&](const std::string& team, const std::string& project,
                         const std::string& of = {}) {
    return http::vercel::make_access_token(keys_of(options), {team, project, of}, now, now + 600);
  };
  const std::string usual = "vercel-sandbox-default-project";
  const auto got = [&](const std::string& path, const std::string& key) {
    return look_at(h, "/api" + path, bearer(key));
  };
  const auto added = [&](const std::string& query, const std::string& name,
                         const std::string& key) {
    return ask(h.port(), "POST", "/api/v11/projects?" + query, R"({"name":")" + name + "\"}",
               bearer(key));
  };
  const auto user = [](const std::string& name, const std::string& team) {
    return R"({"user":{"id":"user_)" + name + R"(","username":")" + name +
           R"(","defaultTeamId":")" + team + R"("}})";
  };
  const auto team = [](const std::string& name) {
    return R"({"id":")" + name + R"(","slug":")" + name + R"(","name":")" + name +
           R"(","membership":{"role":"OWNER"},"billing":{"plan":"hobby"}})";
  };
  const auto project = [](const std::string& name, const std::string& of) {
    return R"({"id":")" + name + R"(","name":")" + name + R"(","accountId":")" + of + R"("})";
  };

  // The main key, and one that names no team: a team of the server's, and any other.
  CHECK(got("/v2/user", main_key).body == user("insula", "team_insula"));
  CHECK(got("/v2/user", any_key).body == user("all", "team_insula"));
  for (const auto& key : {main_key, any_key}) {
    CHECK(got("/v2/teams?limit=20", key).body ==
          R"({"teams":[)" + team("team_insula") + R"(],"pagination":{"count":1,"next":null}})");
    CHECK(got("/v2/teams/ac%20me", key).body == team("ac me"));
    CHECK(got("/v2/projects/" + usual + "?slug=acme", key).body == project(usual, "acme"));
    CHECK(got("/v2/projects/a%2Fb?teamId=team_1", key).body == project("a/b", "team_1"));
    CHECK(added("slug=acme", usual, key).body == project(usual, "acme"));
  }
  CHECK(look_at(h, "/v2/user", bearer(main_key)).status == 200); // Not below /api alone.

  // A token, and a key with teams and projects: theirs, and nothing else.
  for (const auto& key : {vercel_key, token("me", "prj"), token("me", "prj", "web")}) {
    CHECK(got("/v2/user", key).body.find(R"("defaultTeamId":"me")") != std::string::npos);
    CHECK(got("/v2/teams", key).body.find(team("me") + "]") != std::string::npos);
    CHECK(got("/v2/teams/me", key).body == team("me"));
    CHECK(got("/v2/teams/they", key).body ==
          R"({"error":{"code":"not_found","message":"The team was not found."}})");
    CHECK(got("/v2/projects/prj?slug=me", key).body == project("prj", "me"));
    CHECK(got("/v2/projects/prj?slug=they", key).status == 404);
    for (const auto& answer :
         {got("/v2/projects/" + usual + "?slug=me", key), added("slug=me", usual, key)}) {
      CHECK(answer.status == 404);
      CHECK(answer.body == R"({"error":{"code":"not_found","message":"The project ')" + usual +
                             R"(' was not found. One that there is: --scope me --project prj"}})");
    }
  }
  // Of a token and its key what both name.
  CHECK(got("/v2/user", token("they", "prj", "web")).body ==
        R"({"user":{"id":"user_web",)"
        R"("username":"web","defaultTeamId":null}})");

  // Page by page.
  const std::string duo = "the-key-for-two-teams";
  CHECK(got("/v2/user", duo).body == user("duo", "us"));
  CHECK(got("/v2/teams?limit=1", duo).body ==
        R"({"teams":[)" + team("us") + R"(],"pagination":{"count":1,"next":1}})");
  CHECK(got("/v2/teams?limit=1&until=1", duo).body ==
        R"({"teams":[)" + team("them") + R"(],"pagination":{"count":1,"next":null}})");
  for (const auto* query : {"limit=0", "limit=101", "limit=x", "until=3", "until=-1"})
    CHECK(got(std::string{"/v2/teams?"} + query, duo).status == 400);

  // What is wrong is said in the words of this API.
  CHECK(got("/v2/user", bridge_key).status == 403);
  CHECK(got("/v2/user", "nothing").body.find(R"("code":"forbidden")") != std::string::npos);
  CHECK(look_at(h, "/api/v2/user", {}).status == 401);
  CHECK(ask(h.port(), "POST", "/api/v11/projects", "{}", bearer(main_key)).body ==
        R"({"error":{"code":"bad_request","message":"name is required"}})");
  CHECK(ask(h.port(), "DELETE", "/api/v2/projects/prj", {}, bearer(main_key))
          .body.find(R"({"error":{"code":"not_found")") == 0);
  CHECK(h.heard().all().empty());
}

TEST_CASE("other named keys hold at once, and those that are gone open nothing", "[http][keys]") {
  house h{with_keys()};
  const std::string running = "/v1/sandbox/abc/running", next = "another-key-for-the-bridge";
  REQUIRE(look_at(h, running, bearer(bridge_key)).status == 200);
  client waits{h.port()};
  waits.send(request("GET", running, {}, bearer(bridge_key)));
  REQUIRE(waits.receive().status == 200);
  REQUIRE(h.server().renew(main_key, {{"ci", next, {"bridge"}, {}, {}}}, std::nullopt));
  CHECK(look_at(h, running, bearer(next)).status == 200);
  CHECK(look_at(h, running, bearer(bridge_key)).status == 401);
  CHECK(look_at(h, running, bearer(any_key)).status == 401);
  waits.send(request("GET", running, {}, bearer(bridge_key)));
  CHECK(waits.receive().status == 401); // Also on a connection that is open.
  CHECK(look_at(h, running, bearer(main_key)).status == 200);
}

TEST_CASE("no browser signs in with a named key", "[http][keys]") {
  house h{with_keys()};
  const auto host = "localhost:" + std::to_string(h.port());
  client browser{h.port()};
  const auto typed = [&](const std::string& key) {
    browser.send("POST /console/sign-in HTTP/1.1\r\nHost: " + host + "\r\nOrigin: http://" + host +
                 "\r\nContent-Length: " + std::to_string(key.size()) + "\r\n\r\n" + key);
    return browser.receive();
  };
  const auto refused = typed(any_key);
  CHECK(refused.status == 401);
  CHECK_FALSE(refused.fields.contains("set-cookie"));
  CHECK(typed(main_key).status == 204);
}

TEST_CASE("a named key opens previews if it is for an API that has them", "[http][keys]") {
  house h{with_keys()};
  const auto status = [&](const std::string& key) {
    return look_at(h, "/v1/sandbox/abc/port/8000/", bearer(key)).status;
  };
  for (const auto& key : {bridge_key, sandbox_key, any_key}) {
    CHECK(status(key) != 401);
    CHECK(status(key) != 403);
  }
  CHECK(status(vercel_key) == 403);
  CHECK(status("some-other-key-that-is-none") == 401);
  // By way of execd's port it is OpenSandbox's alone.
  const auto through = [&](const std::string& key) {
    return look_at(h, "/sandboxes/abc/proxy/44772/proxy/8000/", bearer(key)).status;
  };
  CHECK(through(sandbox_key) != 403);
  CHECK(through(bridge_key) == 403);
}

TEST_CASE("a ceiling of a key is told in the words of each API", "[http][keys]") {
  house h{with_keys()};
  const error full{errc::key_ceiling, "The API key ci may have 2 sandboxes at once."},
    late{errc::key_ceiling, "The API key ci may make 2 sandboxes a minute.", 17};
  h.plays().find_error = full;
  auto got =
    ask(h.port(), "POST", "/v1/sandbox/abc/exec", R"({"argv":["true"]})", bearer(bridge_key));
  CHECK(got.status == 429);
  CHECK(got.body == R"({"error":"The API key ci may have 2 sandboxes at once.",)"
                    R"("code":"key_limit_reached"})");
  CHECK_FALSE(got.fields.contains("retry-after"));
  h.plays().find_error = late;
  got = ask(h.port(), "POST", "/v1/sandbox/abc/exec", R"({"argv":["true"]})", bearer(bridge_key));
  CHECK(got.status == 429);
  CHECK(got.fields["retry-after"] == "17");
}

TEST_CASE("Vercel: a 429 says once when to come again, if anybody knows", "[http][keys][vercel]") {
  house h{with_keys()};
  const auto refused = [&](error why) {
    h.plays().find_error = std::move(why);
    client one{h.port()};
    one.send(
      request("POST", "/v3/sandboxes", R"({"projectId":"prj","name":"box"})", bearer(main_key)));
    const auto head = one.read_until("\r\n\r\n");
    CHECK(head.starts_with("HTTP/1.1 429 "));
    std::vector<std::string> said;
    const std::string field = "\r\nRetry-After: ";
    for (auto at = head.find(field); at != head.npos; at = head.find(field, at + 1)) {
      const auto value = at + field.size();
      said.push_back(head.substr(value, head.find('\r', value) - value));
    }
    return said;
  };
  using texts = std::vector<std::string>;
  CHECK(refused({errc::key_ceiling, "The API key ci may have 2 sandboxes at once."}) == texts{});
  CHECK(refused({errc::key_ceiling, "The API key ci may make 2 sandboxes a minute.", 17}) ==
        texts{"17"});
  CHECK(refused({errc::machine_full, "the machine has no memory for it"}) == texts{"5"});
  CHECK(refused({errc::capacity_exceeded, "the node has 10 sandboxes"}) == texts{"2"});
}

TEST_CASE("Vercel: commands and files of another project are not there", "[http][keys][vercel]") {
  const auto options = with_keys();
  house h{options};
  const auto now = static_cast<std::int64_t>(::time(nullptr));
  const std::string session = "sbx_" + std::string(26, 'a') + "1", command(32, 'a'),
                    path = "/v2/sandboxes/sessions/" + session;
  h.plays().command.known = h.plays().command.output = true;
  h.plays().command.text =
    R"({"id":"cmd_)" + command + R"(","name":"sh","args":[],"sessionId":")" + session + R"("})";
  h.plays().log_gone = true;
  for (const auto& shown :
       {vercel_key,
        http::vercel::make_access_token(keys_of(options), {"me", "prj", "web"}, now, now + 600),
        http::vercel::make_access_token(keys_of(options), {"me", "prj", ""}, now, now + 600)}) {
    const auto statuses = [&](const std::string& project) {
      h.plays().description = box("box", project).is;
      const auto ask_for = [&](const std::string& method, const std::string& rest) {
        return ask(h.port(), method, path + rest + "?teamId=me", {},
                   bearer(shown) + "Content-Type: application/gzip\r\n")
          .status;
      };
      return std::vector<int>{ask_for("GET", "/cmd"), ask_for("GET", "/cmd/cmd_" + command),
                              ask_for("GET", "/cmd/cmd_" + command + "/logs"),
                              ask_for("POST", "/fs/write")};
    };
    CHECK(statuses("other") == std::vector<int>{404, 404, 404, 404});
    CHECK(statuses("prj") == std::vector<int>{200, 200, 410, 400}); // Its body is no archive.
  }
}

TEST_CASE("Vercel: where projects are listed, what belongs to another is not there",
          "[http][keys][vercel]") {
  auto options = with_keys();
  options.projects = {"prj", "web"};
  house h{options};
  const auto listed = box("one", "prj"), other = box("two", "other");
  h.plays().grouped = {listed, other};
  const auto fields = bearer(main_key);
  const std::string unknown =
    R"({"error":{"code":"not_found","message":"The project was not found."}})";
  CHECK(look_at(h, "/v2/sandboxes?project=prj", fields).status == 200);
  CHECK(look_at(h, "/v2/sandboxes?project=web", fields).status == 200);
  CHECK(look_at(h, "/v2/sandboxes?project=other", fields).body == unknown);
  for (const auto* method : {"GET", "PATCH", "DELETE"})
    CHECK(ask(h.port(), method, "/v2/sandboxes/two?projectId=other", "{}", fields).status == 404);
  CHECK(
    ask(h.port(), "POST", "/v3/sandboxes", R"({"projectId":"other","name":"box"})", fields).body ==
    unknown);
  const auto run_of = [&](const listed_sandbox& is) {
    h.plays().description = is.is;
    return look_at(h, "/v2/sandboxes/sessions/sbx_" + std::string(26, 'a') + "1", fields).status;
  };
  CHECK(run_of(listed) == 200);
  CHECK(run_of(other) == 404);
  for (const auto& each : h.heard().all())
    CHECK(each.find("delete") == std::string::npos);
}

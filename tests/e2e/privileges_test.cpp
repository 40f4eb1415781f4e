// Which sandboxes have the privileges `sudo`: the node's word, a client's, and the record's.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/older_store.hpp"

#include <csignal>
#include <filesystem>

using namespace insula::test;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view wants_sudo = "Insula-Privileges: sudo\r\n";
constexpr std::string_view wants_none = "Insula-Privileges: none\r\n";

exec_outcome run(const node& it, std::string_view id, const std::string& script,
                 std::string_view fields = {}) {
  return exec_stream{it.port(), id, exec_body({"bash", "-c", script}), fields}.rest();
}

/// "sudo", "none", or nothing if there is no such sandbox.
std::string privileges_of(const node& it, std::string_view id) {
  const auto got = it.ask("GET", "/v1/sandbox/" + std::string{id});
  const std::string before = R"("privileges":")";
  const auto at = got.body.find(before);
  if (got.status != 200 || at == std::string::npos)
    return {};
  const auto from = at + before.size();
  return got.body.substr(from, got.body.find('"', from) - from);
}

} // namespace

TEST_CASE("a client asks for the privileges of a sandbox when it makes it", "[privileges]") {
  node it;
  CHECK(privileges_of(it, "a").empty());
  CHECK(it.ask("GET", "/v1/sandbox/a").status == 404);
  // By its first use, or by being made.
  CHECK(run(it, "a", "sudo id -u", wants_sudo).out == "0\n");
  CHECK(run(it, "b", "sudo id -u").exit_code != 0);
  const auto made = it.ask("POST", "/v1/sandbox", {}, wants_sudo);
  REQUIRE(made.status == 200);
  const auto id = made.body.substr(7, 26);
  CHECK(run(it, id, "sudo id -u").out == "0\n");
  CHECK(it.ask("PUT", "/v1/sandbox/c/file/workspace/x", "y", wants_sudo).status == 200);
  CHECK(run(it, "c", "sudo cat x").out == "y");
  for (const auto& each : {std::string{"a"}, id, std::string{"c"}})
    CHECK(privileges_of(it, each) == "sudo");
  CHECK(privileges_of(it, "b") == "none");
  // Those that it has may be asked for, and no others.
  CHECK(run(it, "a", "sudo id -u", wants_sudo).out == "0\n");
  CHECK(run(it, "b", "true", wants_none).exit_code == 0);
  for (const auto& [which, fields] : {std::pair{"a", wants_none}, std::pair{"b", wants_sudo}}) {
    const auto refused = run(it, which, "true", fields);
    CHECK(refused.status == 409);
    CHECK(refused.refusal.find("they are settled when it is made") != std::string::npos);
  }
  CHECK(run(it, "d", "true", "Insula-Privileges: root\r\n").status == 400);
  CHECK(privileges_of(it, "d").empty());
  // A server goes and comes, and the sandbox has what it had.
  REQUIRE(it.stop(SIGTERM) == 0);
  it.start();
  CHECK(run(it, "a", "sudo id -u").out == "0\n");
  CHECK(run(it, "b", "sudo id -u").exit_code != 0);
  // Deleted, its id is nobody's.
  CHECK(it.remove("a") == 204);
  CHECK(run(it, "a", "command -v sudo").exit_code != 0);
}

TEST_CASE("a node gives its privileges to new sandboxes, also from the pool", "[privileges]") {
  node it{"sandbox: {privileges: sudo}\npool: {target: 2}"};
  for (const auto* id : {"a", "b", "c"}) {
    CHECK(run(it, id, "sudo id -u").out == "0\n");
    CHECK(run(it, id, "dpkg -S /usr/bin/dpkg").out == "dpkg: /usr/bin/dpkg\n");
  }
  CHECK(run(it, "d", "command -v sudo", wants_none).exit_code != 0);
  CHECK(privileges_of(it, "d") == "none");
  // Another word of the node's changes none that is there.
  REQUIRE(it.stop(SIGTERM) == 0);
  it.configure("sandbox: {privileges: none}");
  it.start();
  CHECK(run(it, "a", "sudo id -u").out == "0\n");
  CHECK(run(it, "d", "command -v sudo").exit_code != 0);
  CHECK(run(it, "e", "command -v sudo").exit_code != 0);
}

TEST_CASE("where `sudo` is not allowed nobody gets it, and none with it starts", "[privileges]") {
  node it;
  CHECK(run(it, "a", "sudo id -u", wants_sudo).out == "0\n");
  it.crash_both(); // A sandbox that runs goes on otherwise.
  it.configure("sandbox: {allow_sudo: false}");
  it.start();
  for (int i = 0; i < 2; ++i) // To ask what it is starts nothing.
    CHECK(it.ask("GET", "/v1/sandbox/a").body.find(R"("state":"asleep")") != std::string::npos);
  const auto stays = run(it, "a", "true");
  CHECK(stays.status == 403);
  CHECK(stays.refusal.find("sandbox.allow_sudo") != std::string::npos);
  CHECK(run(it, "b", "true", wants_sudo).status == 403);
  CHECK(it.ask("POST", "/v1/sandbox", {}, wants_sudo).status == 403);
  CHECK(run(it, "b", "true").exit_code == 0);
  CHECK(it.ask("POST", "/v1/sandboxes",
               R"({"image":{"uri":"host"},"entrypoint":["true"],"resourceLimits":{},)"
               R"("extensions":{"insula.privileges":"sudo"}})")
          .status == 403);
  CHECK(it.remove("a") == 204);
}

TEST_CASE("OpenSandbox's clients ask for privileges among the extensions", "[privileges]") {
  const node it;
  const auto make = [&](const std::string& word) {
    return it.ask("POST", "/v1/sandboxes",
                  R"({"image":{"uri":"host"},"entrypoint":["tail","-f","/dev/null"],)"
                  R"("resourceLimits":{},"extensions":{"insula.privileges":")" +
                    word + R"(","other":"x"}})");
  };
  const auto made = make("sudo");
  REQUIRE(made.status == 202);
  const auto id = made.body.substr(7, 26);
  CHECK(privileges_of(it, id) == "sudo");
  const auto said = it.ask("POST", "/v1/sandboxes/" + id + "/proxy/44772/command",
                           R"({"command":"sudo id -u; id -u"})");
  CHECK(said.body.find(R"("text":"0\n")") != std::string::npos);
  CHECK(make("root").status == 400);
  // Two words for one sandbox are refused, and make none.
  const auto both = it.ask("POST", "/v1/sandboxes",
                           R"({"image":{"uri":"host"},"entrypoint":["true"],"resourceLimits":{},)"
                           R"("extensions":{"insula.privileges":"none"}})",
                           wants_sudo);
  CHECK(both.status == 409);
}

TEST_CASE("a sandbox of an earlier version gains nothing, whatever the node says", "[privileges]") {
  node it{"sandbox: {privileges: sudo}", [&](const std::string& state) {
            fs::create_directories(state + "/records");
            write_older_store(state + "/records/insula.db", {{"old", "created_ms", "1700000000000"},
                                                             {"old", "image", "host"},
                                                             {"_lease", "reserved_until", "1000"}});
          }};
  CHECK(run(it, "old", "grep NoNewPrivs /proc/self/status").out == "NoNewPrivs:\t1\n");
  CHECK(run(it, "new", "grep NoNewPrivs /proc/self/status").out == "NoNewPrivs:\t0\n");
}

TEST_CASE("a server in a sandbox is not told what a client asks of Insula", "[privileges]") {
  const node it;
  REQUIRE(run(it, "a", "true").exit_code == 0);
  auto server = it.open("a", {"python3", "-uc", R"(
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(str(self.headers).encode())
server = http.server.HTTPServer(("127.0.0.1", 8000), Handler)
print("up\n", end=""); server.serve_forever()
)"});
  REQUIRE(server.next()->data == "up\n");
  const auto got = it.ask("GET", "/v1/sandbox/a/port/8000/", {}, wants_none);
  CAPTURE(got.body);
  CHECK(got.body.find("Host") != std::string::npos);
  CHECK(got.body.find("Insula-Privileges") == std::string::npos);
}

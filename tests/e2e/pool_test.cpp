#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"

#include <csignal>
#include <fstream>

using namespace insula::test;

namespace {

/// {"warm":w,"assigned":a,…
bool has(const node& it, unsigned warm, unsigned assigned) {
  return it.ask("GET", "/v1/pool/stats")
    .body.starts_with("{\"warm\":" + std::to_string(warm) +
                      ",\"assigned\":" + std::to_string(assigned) + ",");
}

bool fills(const node& it, unsigned warm, unsigned assigned) {
  return eventually([&] { return has(it, warm, assigned); });
}

double counted(const node& it, const char* what) {
  return metrics_page{it.ask("GET", "/metrics").body}.value(what);
}

std::string command_of(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/cmdline"};
  std::string name;
  std::getline(file, name, '\0');
  return name;
}

/// The first processes of sandboxes: children of the spawner.
std::vector<pid_t> agents(const node& it) {
  std::vector<pid_t> found;
  for (const auto pid : it.processes()) {
    std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
    std::string text;
    std::getline(file, text);
    const auto rest = text.substr(std::min(text.size(), text.rfind(") ") + 4));
    if (command_of(pid).starts_with("insula-agent") &&
        std::strtol(rest.c_str(), nullptr, 10) == it.spawner())
      found.push_back(pid);
  }
  std::sort(found.begin(), found.end());
  return found;
}

constexpr const char* full_of_two =
  R"({"error":"Cannot start container: instance limit reached (2/2). All container slots are in use. Wait for existing containers to stop.","code":"capacity_exceeded"})";

} // namespace

TEST_CASE("a warm sandbox is claimed, and has its own name, environment and empty workspace",
          "[pool]") {
  const node it{"pool: {target: 2}"};
  REQUIRE(fills(it, 2, 0)); // By itself.
  const auto made = agents(it);
  REQUIRE(made.size() == 2);
  const auto got = it.sh("abc", "hostname; echo $HOME; pwd; ls -A; whoami");
  CHECK(got.exit_code == 0);
  CHECK(got.out == "abc\n/home/sandbox\n/workspace\nsandbox\n");
  CHECK(counted(it, "insula_pool_claims_total") == 1);
  CHECK(counted(it, "insula_pool_cold_starts_total") == 0);
  CHECK(fills(it, 2, 1)); // Refilled, long before a round.
  // A used one never goes back, and the next one is another.
  CHECK(it.sh("abc", "echo mine > file").exit_code == 0);
  CHECK(it.remove("abc") == 204);
  CHECK(has(it, 2, 0));
  CHECK(it.sh("abc", "ls -A; hostname").out == "abc\n");
  // Sessions and terminals begin in one as well.
  CHECK(it.sh("def", "cd /tmp; X=1", "").exit_code == 0);
  CHECK(it.ask("POST", "/v1/sandbox/ghi/session", R"({"id":"s"})").status == 200);
  CHECK(it.sh("ghi", "hostname").out == "ghi\n");
}

TEST_CASE("thirty at once are each their own, with and without a warm one", "[pool]") {
  const node it{"pool: {target: 10}\nsandbox: {max_instances: 60}"};
  REQUIRE(fills(it, 10, 0));
  const std::string letters = "abcdefghijklmnopqrstuvwxyz2345";
  const auto names = at_once(letters.size(), [&](std::size_t i) {
    const auto id = "p" + letters.substr(i, 1);
    return it.sh(id, "hostname; echo " + id + " > mine; sleep 0.1; cat *").out ==
           id + "\n" + id + "\n";
  });
  CHECK(std::count(names.begin(), names.end(), true) == 30);
  CHECK(fills(it, 10, 30));
}

TEST_CASE("many first requests for one id start one sandbox", "[pool]") {
  const node it{"pool: {target: 3}"};
  REQUIRE(fills(it, 3, 0));
  const auto all = at_once(15, [&](std::size_t i) {
    return it.sh("one", "echo x >> file" + std::to_string(i)).exit_code == 0;
  });
  CHECK(std::count(all.begin(), all.end(), true) == 15);
  CHECK(it.sh("one", "ls | wc -l").out == "15\n");
  CHECK(counted(it, "insula_pool_claims_total") == 1);
  CHECK(fills(it, 3, 1));
}

TEST_CASE("a slot whose agent was killed is never handed out", "[pool]") {
  const node it{"pool: {target: 3, refresh_interval: 1h}"};
  REQUIRE(fills(it, 3, 0));
  const auto victims = agents(it);
  REQUIRE(victims.size() == 3);
  SECTION("just now") {
    ::kill(victims[0], SIGKILL);
    CHECK(it.sh("a", "echo works").out == "works\n");
  }
  SECTION("long ago") {
    ::kill(victims[0], SIGKILL);
    CHECK(fills(it, 2, 0));
    CHECK(it.sh("a", "echo works").out == "works\n");
  }
  SECTION("it hangs") {
    ::kill(victims[0], SIGSTOP);
    CHECK(it.sh("a", "echo works").out == "works\n");
    CHECK(it.log().find("pool.dead_slot") != std::string::npos);
  }
  SECTION("all of them, just now") {
    for (const auto each : victims)
      ::kill(each, SIGKILL);
    CHECK(it.sh("a", "echo works").out == "works\n");
  }
  CHECK(fills(it, 3, 1)); // The claim has brought them back.
}

TEST_CASE("a round finds what hangs, and replaces it", "[pool]") {
  const node it{"pool: {target: 2, refresh_interval: 100ms}"};
  REQUIRE(fills(it, 2, 0));
  const auto before = agents(it);
  ::kill(before.at(0), SIGSTOP);
  CHECK(eventually([&] {
    const auto now = agents(it);
    return now.size() == 2 && std::find(now.begin(), now.end(), before[0]) == now.end();
  }));
  CHECK(it.sh("a", "echo works").out == "works\n");
}

TEST_CASE("warm ones count for the limit, are given away at it, and never exceed it", "[pool]") {
  const node it{"pool: {target: 5, refresh_interval: 100ms}\nsandbox: {max_instances: 2}"};
  REQUIRE(fills(it, 2, 0));
  CHECK(it.sh("a", "true").exit_code == 0);
  CHECK(it.sh("b", "true").exit_code == 0);
  const auto refused = it.ask("POST", "/v1/sandbox/c/exec", exec_body({"true"}));
  CHECK(refused.status == 503);
  CHECK(refused.body == full_of_two);
  CHECK(it.ask("GET", "/v1/pool/stats").body ==
        R"({"warm":0,"assigned":2,"total":2,"config":{"warmTarget":5,"refreshInterval":100,)"
        R"("maxInstances":2,"scaleBatchSize":5},"maxInstances":2})");
  CHECK(it.remove("a") == 204);
  CHECK(fills(it, 1, 1)); // A round has seen that there is room.
  CHECK(it.sh("c", "hostname").out == "c\n");
}

TEST_CASE("shutdown-prewarmed ends what is warm, and nothing else", "[pool]") {
  const node it{"pool: {target: 3, refresh_interval: 1h}"};
  REQUIRE(fills(it, 3, 0));
  CHECK(it.sh("a", "echo mine > file").exit_code == 0);
  REQUIRE(fills(it, 3, 1));
  const auto got = it.ask("POST", "/v1/pool/shutdown-prewarmed");
  CHECK(got.status == 200);
  CHECK(got.body == R"({"ok":true})");
  CHECK(has(it, 0, 1));
  CHECK(agents(it).size() == 1); // It was waited for.
  CHECK(it.sandbox_groups().size() >= 1);
  CHECK(it.sh("a", "cat file").out == "mine\n");
  CHECK(it.ask("POST", "/v1/pool/prime").body == R"({"ok":true})");
}

TEST_CASE("a spawner that has only warm sandboxes goes with its server", "[pool]") {
  node it{"pool: {target: 2}"};
  REQUIRE(fills(it, 2, 0));
  REQUIRE(it.sh("a", "true").exit_code == 0);
  REQUIRE(fills(it, 2, 1));
  const auto spawner = it.spawner();
  CHECK(it.stop(SIGTERM) == 0);
  it.start();
  CHECK(it.spawner() == spawner); // It has a.
  CHECK(it.remove("a") == 204);
  REQUIRE(fills(it, 2, 0));
  SECTION("that ends") {
    CHECK(it.stop(SIGTERM) == 0);
  }
  SECTION("that is killed") {
    it.crash_server();
  }
  it.start();
  CHECK(it.spawner() != spawner);
  CHECK(fills(it, 2, 0));
  CHECK(it.sh("a", "hostname").out == "a\n");
}

TEST_CASE("after any end of a server its pool leaves nothing, and the next one begins afresh",
          "[pool]") {
  node it{"pool: {target: 3}"};
  REQUIRE(fills(it, 3, 0));
  CHECK(it.sh("a", "true").exit_code == 0);
  unsigned assigned = 0; // What was claimed goes on, unless the spawner has ended.
  SECTION("killed") {
    it.crash_server();
    assigned = 1;
  }
  SECTION("both killed") {
    it.crash_both();
  }
  SECTION("told to leave") {
    CHECK(it.stop(SIGTERM) == 0);
    assigned = 1;
  }
  SECTION("told to end") {
    CHECK(it.stop(SIGINT) == 0);
    CHECK(eventually([&] { return it.processes().empty(); }));
  }
  it.start();
  CHECK(fills(it, 3, assigned));
  CHECK(eventually([&] { return agents(it).size() == 3 + assigned; }));
  CHECK(it.sh("a", "hostname").out == "a\n");
}

// Nodes that are one cluster: whoever is asked answers, and each sandbox is at one of them.
#include "tests/e2e/moved_clock.hpp"
#include "tests/e2e/small_cluster.hpp"
#include "tests/e2e/upgrade.hpp"
#include "tests/support/metrics_text.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <openssl/evp.h>
#include <sys/wait.h>

using namespace insula::test;

namespace {

/// What a server says that does not start.
template <class Start>
std::string why_not(Start start) {
  try {
    start();
  } catch (const std::exception& why) {
    return why.what();
  }
  return "it has started";
}

std::string base64(const std::string& text) {
  std::string made(4 * ((text.size() + 2) / 3) + 1, '\0');
  made.resize(static_cast<std::size_t>(EVP_EncodeBlock(
    reinterpret_cast<unsigned char*>(made.data()),
    reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()))));
  return made;
}

/// Of etcd's, by its gateway.
std::string tell_etcd(const etcd_server& etcd, const std::string& what, const std::string& body) {
  const auto port =
    static_cast<std::uint16_t>(std::stoi(etcd.url().substr(etcd.url().rfind(':') + 1)));
  const auto said = http_ask(port, "POST", "/v3/kv/" + what, body);
  REQUIRE(said.status == 200);
  return said.body;
}

bool is_member(const etcd_server& etcd, const std::string& name) {
  return tell_etcd(etcd, "range", "{\"key\":\"" + base64("insula/nodes/" + name) + "\"}")
           .find("\"kvs\"") != std::string::npos;
}

} // namespace

TEST_CASE("every node answers for every sandbox, and each is on one of them", "[cluster]") {
  small_cluster nodes;
  std::set<std::string> ids;
  for (std::size_t i = 0; i < 6; ++i) {
    const auto made = nodes[i % 3].ask("POST", "/v1/sandbox");
    REQUIRE(made.status == 200);
    rapidjson::Document body;
    body.Parse(made.body.c_str());
    ids.insert(body["id"].GetString());
  }
  CHECK(ids.size() == 6);
  for (const auto& id : ids)
    for (std::size_t i = 0; i < 3; ++i) {
      const auto said = nodes[i].sh(id, "echo x >> seen; grep -c x seen");
      CHECK(said.exit_code == 0);
      CHECK(said.out == std::to_string(i + 1) + "\n");
    }
  for (const auto& id : ids) {
    const auto owner = small_cluster::owner_of(nodes[0], id);
    CHECK(owner.epoch > 0);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(small_cluster::owner_of(nodes[i], id).node == owner.node);
  }
  // Files through a node that does not have the sandbox, in both directions.
  const auto id = *ids.begin();
  const auto at = nodes.owner_number(id);
  auto& other = nodes[(at + 1) % 3];
  const std::string bytes(5'000'000, 'b');
  CHECK(other.ask("PUT", "/v1/sandbox/" + id + "/file/workspace/big", bytes).status == 200);
  CHECK(nodes[at].sh(id, "wc -c < big").out == "5000000\n");
  CHECK(other.ask("GET", "/v1/sandbox/" + id + "/file/workspace/big").body == bytes);
  CHECK(other.sh(id, "exit 7").exit_code == 7);
  // The sum of all.
  CHECK(eventually([&] {
    return other.ask("GET", "/v1/pool/stats").body.find("\"assigned\":6") != std::string::npos;
  }));
  for (std::size_t i = 0; const auto& each : ids)
    CHECK(nodes[i++ % 3].remove(each) == 204);
  CHECK(eventually([&] { return small_cluster::owner_of(nodes[0], id).node.empty(); }));
}

TEST_CASE("the pool's figures are the sum of all nodes'", "[cluster]") {
  small_cluster nodes{2, "pool: {target: 2}\nsandbox: {max_instances: 30}\n"};
  for (const auto& each : nodes.all) {
    rapidjson::Document seen;
    CHECK(eventually([&] {
      seen.Parse(each->ask("GET", "/v1/pool/stats").body.c_str());
      return !seen.HasParseError() && seen.HasMember("warm") && seen["warm"].GetInt() == 4;
    }));
    CAPTURE(each->ask("GET", "/v1/pool/stats").body);
    REQUIRE(seen.HasMember("config"));
    CHECK(seen["config"]["warmTarget"].GetInt() == 4);
    CHECK(seen["maxInstances"].GetInt() == 60);
  }
  CHECK(nodes[0].sh("warm", "echo on").out == "on\n");
}

TEST_CASE("a command in a sandbox asks nothing of etcd, at whichever node", "[cluster]") {
  small_cluster nodes{2};
  REQUIRE(nodes[0].sh("quiet", "true").exit_code == 0);
  REQUIRE(nodes[1].sh("quiet", "true").exit_code == 0);
  const auto questions = [&](std::size_t at) {
    return metrics_page{nodes[at].ask("GET", "/metrics").body}.value("insula_etcd_questions_total");
  };
  const double before = questions(0) + questions(1);
  CHECK(before > 0);
  constexpr int commands = 300;
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < commands / 2; ++i)
    for (std::size_t at = 0; at < 2; ++at)
      REQUIRE(nodes[at].sh("quiet", "true").exit_code == 0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  // Each renews its lease twice a second, with two questions, and now and then looks for alarms
  // that are nobody's.
  const double anyway = 2 * (4 * took.count() + took.count() / 10 + 2);
  CHECK(questions(0) + questions(1) - before < anyway + commands / 4.);
}

TEST_CASE("a key makes one sandbox, whichever nodes are asked with it", "[cluster]") {
  small_cluster nodes;
  const auto answers = at_once(9, [&](std::size_t i) {
    return nodes[i % 3].ask("POST", "/v1/sandbox", {}, "Idempotency-Key: one\r\n").body;
  });
  for (const auto& each : answers)
    CHECK(each == answers[0]);
  rapidjson::Document seen;
  seen.Parse(nodes[0].ask("GET", "/v1/cluster").body.c_str());
  CHECK(seen["sandboxes"].Size() == 1);
}

TEST_CASE("what a lost node had goes on at another one", "[cluster]") {
  small_cluster nodes;
  REQUIRE(nodes[0].sh("lost", "echo here > file").exit_code == 0);
  const auto at = nodes.owner_number("lost");
  const auto before = small_cluster::owner_of(nodes[at], "lost");
  auto& other = nodes[(at + 1) % 3];
  nodes[at].crash_both();
  const auto said = sh_patiently(other, "lost", "cat file 2>/dev/null; echo again");
  CHECK(said.out == "again\n");
  const auto after = small_cluster::owner_of(other, "lost");
  CHECK(after.node != before.node);
  CHECK(after.epoch > before.epoch);
  // The machine comes back, and is a member as any other.
  nodes[at].start();
  CHECK(eventually([&] { return small_cluster::members(other) == 3; }));
  CHECK(nodes[at].sh("lost", "echo three").out == "three\n");
  CHECK(small_cluster::owner_of(other, "lost").node == after.node);
}

TEST_CASE("a node that has lost its spawner ends, and every new sandbox is made at the others",
          "[cluster]") {
  small_cluster nodes;
  REQUIRE(nodes[0].sh("moves", "echo here > file").exit_code == 0);
  const auto at = nodes.owner_number("moves");
  auto& lost = nodes[at];
  const std::array others{&nodes[(at + 1) % 3], &nodes[(at + 2) % 3]};
  REQUIRE(is_member(nodes.etcd, small_cluster::name_of(at)));
  lost.crash_spawner();
  for (std::size_t i = 0; i < 30; ++i) {
    const auto id =
      std::string{"new"} + static_cast<char>('a' + i % 26) + static_cast<char>('a' + i / 26);
    // What goes to the lost one in its last moment is told to come again.
    const auto got = sh_patiently(*others[i % 2], id, "echo made");
    CHECK(got.out == "made\n");
  }
  const int status = lost.stop(0); // By itself.
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
  // It has given its lease back, and what it had is another's.
  CHECK_FALSE(is_member(nodes.etcd, small_cluster::name_of(at)));
  CHECK(eventually([&] { return small_cluster::members(*others[0]) == 2; }));
  CHECK(sh_patiently(*others[0], "moves", "ls; echo again").out == "again\n");
  lost.start();
  CHECK(eventually([&] { return small_cluster::members(*others[0]) == 3; }));
}

TEST_CASE("a node whose memory is nearly used up gets no new sandbox while others have room",
          "[cluster]") {
  small_cluster nodes{2};
  const auto fill_up = [&](std::size_t which) {
    nodes[which].configure(nodes.yaml(which) + "node: {memory_reserve: 1TiB}\n");
    nodes[which].stop(SIGTERM);
    nodes[which].start();
    for (const auto& each : nodes.all)
      REQUIRE(eventually([&] { return small_cluster::members(*each) == 2; }));
  };
  fill_up(1);
  for (std::size_t i = 0; i < 12; ++i) { // It is the one with the most places free.
    const auto id = std::string{"room"} + static_cast<char>('a' + i);
    CHECK(nodes[i % 2].sh(id, "echo made").out == "made\n");
    CHECK(small_cluster::owner_of(nodes[0], id).node == "n1");
  }
  // Where no node has room, the answer says so.
  fill_up(0);
  for (const auto& each : nodes.all) {
    const auto got = each->ask("POST", "/v1/sandbox/full/exec", exec_body({"true"}));
    CHECK(got.status == 503);
    CHECK(got.body.find("the node's memory is nearly used up") != std::string::npos);
    CHECK(got.fields.at("retry-after") == "5");
  }
}

TEST_CASE("a server that is started again in time goes on with what it had", "[cluster]") {
  small_cluster nodes{2};
  REQUIRE(nodes[0]
            .sh("stays", "echo here > file; sleep 1000 >/dev/null 2>&1 & echo $! > pid")
            .exit_code == 0);
  const auto at = nodes.owner_number("stays");
  const auto before = small_cluster::owner_of(nodes[at], "stays");
  nodes[at].stop(SIGTERM);
  nodes[at].start();
  const auto said = sh_patiently(nodes[1 - at], "stays", "cat file; kill -0 $(cat pid) && echo on");
  CHECK(said.out == "here\non\n");
  CHECK(small_cluster::owner_of(nodes[at], "stays").epoch == before.epoch);
}

TEST_CASE("an upgrade replaces the server of a node, which goes on as the same member",
          "[cluster][upgrade]") {
  small_cluster nodes{2};
  REQUIRE(nodes[0]
            .sh("stays", "echo here > file; sleep 1000 >/dev/null 2>&1 & echo $! > pid")
            .exit_code == 0);
  const auto at = nodes.owner_number("stays");
  auto &mine = nodes[at], &other = nodes[1 - at];
  const auto before = small_cluster::owner_of(mine, "stays");
  const pid_t old = mine.pid();
  auto replacing = start_upgrade(mine);
  CHECK(replacing.wait(60s) == 0);
  CHECK(mine.stop(SIGTERM) == 0); // It has ended already.
  const next_server now{mine};
  CHECK(now.pid() != old);
  const auto said = sh_patiently(other, "stays", "cat file; kill -0 $(cat pid) && echo on");
  CHECK(said.out == "here\non\n");
  CHECK(small_cluster::owner_of(mine, "stays").epoch == before.epoch);
  // They hear of each other by the links.
  for (const auto* each : {&mine, &other})
    CHECK(eventually([&] { return small_cluster::members(*each) == 2; }));
}

TEST_CASE("an upgrade to a program of another protocol is refused beside other nodes",
          "[cluster][upgrade]") {
  small_cluster nodes{1};
  const auto key = "{\"key\":\"" + base64("insula/nodes/n3") + "\"";
  tell_etcd(nodes.etcd, "put", key + ",\"value\":\"" + base64("192.0.2.3:8788 99 9.9.9") + "\"}");
  const pid_t before = nodes[0].pid();
  auto replacing = start_upgrade(nodes[0]);
  CHECK(replacing.wait(60s) == 1 << 8);
  const auto why = complaint_of(nodes[0]);
  CAPTURE(why);
  CHECK(why.find("insula: node n1 cannot join its cluster: node n3 speaks protocol 99 "
                 "(build 9.9.9), this one protocol ") != std::string::npos);
  CHECK(
    why.find("insula: this program cannot serve in place of the one that does, which goes on") !=
    std::string::npos);
  CHECK(nodes[0].pid() == before);
  CHECK(nodes[0].running());
  CHECK(nodes[0].sh("goeson", "echo on").out == "on\n");
  tell_etcd(nodes.etcd, "deleterange", key + "}");
}

TEST_CASE("a node that ends lets go at once", "[cluster]") {
  small_cluster nodes{2};
  REQUIRE(nodes[0].sh("moves", "true").exit_code == 0);
  const auto at = nodes.owner_number("moves");
  CHECK(nodes[at].stop(SIGINT) == 0);
  CHECK(small_cluster::owner_of(nodes[1 - at], "moves").node.empty());
  CHECK(nodes[1 - at].sh("moves", "echo fresh").out == "fresh\n");
}

TEST_CASE("without etcd nodes answer that they cannot, and go on when it is back", "[cluster]") {
  small_cluster nodes{2};
  REQUIRE(nodes[0].sh("waits", "echo here > file").exit_code == 0);
  nodes.etcd.stand_still();
  CHECK(eventually([&] {
    const auto said = nodes[0].ask("GET", "/v1/sandbox/waits/running");
    return said.status == 503 && said.fields.count("retry-after") == 1;
  }));
  CHECK(eventually([&] { return nodes[1].ask("POST", "/v1/sandbox").status == 503; }));
  CHECK(nodes[0].ask("GET", "/v1/cluster").status == 200);
  nodes.etcd.go_on();
  const auto said = sh_patiently(nodes[1], "waits", "echo back");
  CHECK(said.out == "back\n");
}

TEST_CASE("a server that stands still has lost its sandboxes when it goes on", "[cluster]") {
  small_cluster nodes{2};
  // Counts as long as it may run.
  REQUIRE(nodes[0]
            .sh("still", "(while :; do echo x >> count; sleep 0.05; done) >/dev/null 2>&1 &")
            .exit_code == 0);
  const auto at = nodes.owner_number("still");
  const auto before = small_cluster::owner_of(nodes[1 - at], "still");
  ::kill(nodes[at].pid(), SIGSTOP);
  // Its spawner has frozen what it has by the time that another one may have it.
  const auto said = sh_patiently(nodes[1 - at], "still", "cat count 2>/dev/null; echo fresh");
  CHECK(said.out == "fresh\n");
  ::kill(nodes[at].pid(), SIGCONT);
  CHECK(eventually([&] { return nodes[at].sandbox_groups().empty(); }));
  const auto after = small_cluster::owner_of(nodes[1 - at], "still");
  CHECK(after.node != before.node);
  CHECK(after.epoch > before.epoch);
  CHECK(sh_patiently(nodes[at], "still", "echo there").out == "there\n");
  CHECK(nodes[at].log().find("cluster.lost") != std::string::npos);
}

TEST_CASE("what a server was about to do when it stood still is not done once its lease is over",
          "[cluster]") {
  // Each is behind the last look at the lease, and before what a client is told of.
  const auto step = GENERATE(as<std::string>{}, "exec.start", "object.write");
  INFO(step);
  small_cluster nodes{2};
  REQUIRE(nodes[0].sh("late", "true").exit_code == 0);
  const auto at = nodes.owner_number("late");
  auto& other = nodes[1 - at];
  nodes[at].stop(SIGTERM);
  ::setenv("INSULA_FAILPOINT", ("stop:" + step).c_str(), 1);
  nodes[at].start();
  ::unsetenv("INSULA_FAILPOINT");
  std::optional<int> exit_code;
  int status = 0;
  {
    const std::jthread client{[&] {
      try {
        if (step == "exec.start")
          exit_code = nodes[at].sh("late", "echo late > late").exit_code;
        else
          status =
            nodes[at].ask("PUT", "/v1/sandbox/late/network", "{\"default\":\"deny\"}").status;
      } catch (const std::exception&) {
        // It was cut off.
      }
    }};
    CHECK(eventually([&] { return nodes[at].stands_still(); }));
    CHECK(sh_patiently(other, "late", "echo fresh").out == "fresh\n");
    ::kill(nodes[at].pid(), SIGCONT);
  }
  // Who is told that it was done was carried on to the new owner, where it was.
  CHECK(sh_patiently(other, "late", "cat late 2>/dev/null; echo on").out ==
        (exit_code ? "late\non\n" : "on\n"));
  const auto policy = other.ask("GET", "/v1/sandbox/late/network").body;
  CHECK((policy.find("\"deny\"") != std::string::npos) == (status == 200));
  CHECK(eventually([&] { return nodes[at].sandbox_groups().empty(); }));
}

TEST_CASE("a node that is drained hands over what it has", "[cluster]") {
  small_cluster nodes{2};
  std::set<std::string> ids;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto id = "drain" + std::string(1, static_cast<char>('a' + i));
    REQUIRE(nodes[i % 2].sh(id, "true").exit_code == 0);
    ids.insert(id);
  }
  CHECK(nodes[1].ask("POST", "/v1/cluster/drain/n9").status == 404);
  CHECK(nodes[1].ask("POST", "/v1/cluster/drain/n1").status == 202);
  CHECK(eventually([&] {
    for (const auto& id : ids)
      if (small_cluster::owner_of(nodes[1], id).node == "n1")
        return false;
    return true;
  }));
  for (const auto& id : ids) {
    CHECK(sh_patiently(nodes[0], id, "echo on").out == "on\n");
    CHECK(small_cluster::owner_of(nodes[1], id).node == "n2");
  }
  CHECK(nodes[0].ask("POST", "/v1/sandbox").status == 200);
  CHECK(eventually([&] {
    return nodes[1].ask("GET", "/v1/cluster").body.find("\"draining\"") != std::string::npos;
  }));
  CHECK(nodes[0].sandbox_groups().empty());
}

TEST_CASE("what is known to be wrong with the version of etcd is in the log", "[cluster]") {
  small_cluster nodes{1};
  const auto url = nodes.etcd.url();
  rapidjson::Document status;
  status.Parse(http_ask(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))),
                        "POST", "/v3/maintenance/status", "{}")
                 .body.c_str());
  const std::string version = status["version"].GetString();
  CAPTURE(version);
  int major = 0, minor = 0, patch = 0;
  REQUIRE(std::sscanf(version.c_str(), "%d.%d.%d", &major, &minor, &patch) == 3);
  const bool good =
    major > 3 || minor > 5 || (minor == 5 && patch >= 13) || (minor == 4 && patch >= 31);
  const auto said = "cluster.etcd_version member=" + url + " version=" + version;
  CHECK((nodes[0].log().find(said) == std::string::npos) == good);
}

TEST_CASE("nodes that cannot be members are told why", "[cluster]") {
  small_cluster nodes{1};
  const auto fails = [&](const std::string& yaml, const std::string& name) {
    return why_not([&] { const node other{yaml, nullptr, name}; });
  };
  CHECK(fails(nodes.yaml(0), "n1").find("a node n1 is a member already") != std::string::npos);
  CHECK(fails(nodes.yaml(0), "n7").find("there is no node \"n7\"") != std::string::npos);
  CHECK(fails(nodes.yaml(0), "").find("--node") != std::string::npos);
  nodes.etcd.stand_still();
  CHECK(fails(nodes.yaml(0), "n1").find("etcd") != std::string::npos);
  nodes.etcd.go_on();
}

TEST_CASE("a node whose clock is another one's does not start, and says by how much", "[cluster]") {
  small_cluster nodes{2};
  nodes[1].stop(SIGTERM);
  moved_clock clock{"+600s"};
  const auto why = why_not([&] { nodes[1].start(); });
  CAPTURE(why);
  const std::string words = "insula: node n2 cannot join its cluster: its clock is ";
  const auto at = why.find(words);
  REQUIRE(at != std::string::npos);
  // etcd tells its own in whole seconds.
  CHECK(std::abs(std::stod(why.substr(at + words.size())) - 600) < 5);
  CHECK(why.find(" s ahead of that of etcd at " + nodes.etcd.url()) != std::string::npos);
  clock.to("-5s"); // It is told of, no more.
  nodes[1].start();
  CHECK(eventually([&] {
    return nodes[0].log().find("warning cluster.clock node=n2") != std::string::npos &&
           nodes[1].log().find("warning cluster.clock node=n1") != std::string::npos;
  }));
  CHECK(nodes[1].sh("timely", "echo on").out == "on\n");
}

TEST_CASE("a node whose clock goes wrong while it runs is told of by name, and works",
          "[cluster]") {
  small_cluster nodes{2};
  nodes[1].stop(SIGTERM);
  const moved_clock clock{"+0s"};
  nodes[1].start();
  clock.to("+600s");
  CHECK(eventually([&] {
    return nodes[0].log().find("error cluster.clock node=n2") != std::string::npos &&
           nodes[1].log().find("error cluster.clock node=n1") != std::string::npos;
  }));
  rapidjson::Document seen;
  seen.Parse(nodes[0].ask("GET", "/v1/cluster").body.c_str());
  for (const auto& each : seen["nodes"].GetArray())
    if (std::string{each["name"].GetString()} == "n2")
      CHECK(each["clockAheadMs"].GetInt64() > 500'000);
  // Leases go by another clock.
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(nodes[i].sh("timely", "echo on").out == "on\n");
}

TEST_CASE("a node that speaks another protocol than the others does not start, and names them",
          "[cluster]") {
  small_cluster nodes{2};
  const auto key = "{\"key\":\"" + base64("insula/nodes/n3") + "\"";
  tell_etcd(nodes.etcd, "put", key + ",\"value\":\"" + base64("192.0.2.3:8788 99 9.9.9") + "\"}");
  // Those that are members say so, and go on.
  for (const auto& each : nodes.all)
    CHECK(eventually([&] {
      return each->log().find("error cluster.protocol reason=\"node n3 speaks protocol 99") !=
             std::string::npos;
    }));
  CHECK(nodes[0].sh("spoken", "echo on").out == "on\n");
  nodes[1].stop(SIGTERM);
  const auto why = why_not([&] { nodes[1].start(); });
  CHECK(why.find("insula: node n2 cannot join its cluster: node n3 speaks protocol 99 "
                 "(build 9.9.9), this one protocol ") != std::string::npos);
  tell_etcd(nodes.etcd, "deleterange", key + "}");
  nodes[1].start();
  CHECK(eventually([&] { return small_cluster::members(nodes[0]) == 2; }));
}

TEST_CASE(
  "a node that is too old for what its cluster has stored does not start, and says what to do",
  "[cluster]") {
  small_cluster nodes{2};
  const auto put = [&](const std::string& number) {
    tell_etcd(nodes.etcd, "put",
              R"({"key":")" + base64("insula/format") + R"(","value":")" + base64(number) + "\"}");
  };
  nodes[1].stop(SIGTERM);
  put("99");
  const auto why = why_not([&] { nodes[1].start(); });
  CHECK(
    why.find("insula: node n2 cannot join its cluster: what is stored in etcd below insula/ has "
             "format 99, and this version knows none beyond 4: start the version that the "
             "other nodes had, or a later one") != std::string::npos);
  CHECK(nodes[0].sh("stored", "echo on").out == "on\n"); // It was a member before.
  put("1");
  nodes[1].start(); // It raises the number again.
  CHECK(eventually([&] { return small_cluster::members(nodes[0]) == 2; }));
}

TEST_CASE("a node whose certificate etcd has as revoked says so, and serves no more", "[cluster]") {
  made_authority of_etcd;
  const auto server = of_etcd.issue("127.0.0.1");
  const std::vector clients{of_etcd.issue("n1"), of_etcd.issue("n2")};
  small_cluster nodes{
    2,
    {},
    small_cluster::etcd_ways{{server.certificate, server.key, of_etcd.file(), of_etcd.revoked()},
                             clients}};
  REQUIRE(nodes[0].sh("moves", "true").exit_code == 0);
  const auto at = nodes.owner_number("moves");
  of_etcd.revoke(clients[at]);
  nodes.etcd.stop(); // Connections that are there stay so.
  nodes.etcd.start();
  CHECK(sh_patiently(nodes[1 - at], "moves", "echo on").out == "on\n");
  CHECK(eventually([&] {
    const auto said = nodes[at].ask("GET", "/v1/sandbox/moves/running");
    return said.status == 503 && said.fields.count("retry-after") == 1;
  }));
  CHECK(eventually([&] { return nodes[at].sandbox_groups().empty(); }));
  CHECK(eventually([&] {
    const auto said = nodes[at].log();
    const auto waits = said.rfind("cluster.waits");
    return said.find("cluster.lost") != std::string::npos && waits != std::string::npos &&
           said.find("revoked", waits) != std::string::npos;
  }));
}

TEST_CASE("a node that was taken out of the configuration gets nothing from the others",
          "[cluster]") {
  small_cluster nodes{3};
  REQUIRE(nodes[0].sh("stays", "true").exit_code == 0);
  for (std::size_t i = 0; i < 2; ++i) { // One after the other, as for any change.
    nodes[i].configure(nodes.yaml_without(i, 2));
    nodes[i].stop(SIGTERM);
    nodes[i].start();
  }
  CHECK(eventually([&] { return small_cluster::members(nodes[0]) == 2; }));
  // Its certificate is as good as before, and its configuration has the others.
  CHECK(nodes[0].ask("GET", "/v1/cluster").body.find("\"n3\"") == std::string::npos);
  REQUIRE(sh_patiently(nodes[0], "other", "true").exit_code == 0);
  const auto owner = small_cluster::owner_of(nodes[0], "other").node;
  CHECK((owner == "n1" || owner == "n2"));
  CHECK(nodes[2].ask("GET", "/v1/sandbox/other/running").status == 503);
}

TEST_CASE("a member takes its configuration anew, and stays one", "[cluster]") {
  small_cluster all{2};
  REQUIRE(all[0].sh("a", "echo 1 > f").exit_code == 0);
  REQUIRE(all[1].sh("b", "echo 2 > f").exit_code == 0);
  const auto before = all.owner_of(all[1], "a"), other = all.owner_of(all[0], "b");
  all[0].configure(all.yaml(0) + "log: {level: debug}\npool: {target: 1}");
  REQUIRE(::kill(all[0].pid(), SIGHUP) == 0);
  REQUIRE(eventually([&] {
    return all[0].log().find("warning config.needs_restart keys=pool.target") != std::string::npos;
  }));
  CHECK(all[0].log().find("config.reloaded key=same level=another certificate=none") !=
        std::string::npos);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(all[i].sh("a", "cat f").out == "1\n");
    CHECK(all[i].sh("b", "cat f").out == "2\n");
    CHECK(all.members(all[i]) == 2);
    CHECK(all.owner_of(all[i], "a").epoch == before.epoch);
    CHECK(all.owner_of(all[i], "b").epoch == other.epoch);
  }
}

TEST_CASE("what a client says of nodes is not believed", "[cluster]") {
  small_cluster nodes{2};
  REQUIRE(nodes[0].sh("honest", "true").exit_code == 0);
  const std::string fields = "Insula-Node-From: n2\r\nInsula-Node-Owner: n9\r\n";
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(nodes[i].ask("GET", "/v1/sandbox/honest/running", {}, fields).body ==
          "{\"running\":true}");
}

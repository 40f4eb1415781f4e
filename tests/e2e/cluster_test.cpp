#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/etcd.hpp"
#include "tests/support/made_authority.hpp"

#include <csignal>
#include <rapidjson/document.h>
#include <set>
#include <unistd.h>

using namespace insula::test;

namespace {

/// A cluster on loopback: an etcd, and nodes that know each other. What they say to it costs
/// nobody else anything.
class small_cluster {
public:
  explicit small_cluster(std::size_t count = 3, const std::string& more = {}) {
    std::string nodes;
    for (std::size_t i = 0; i < count; ++i) {
      const auto name = name_of(i);
      const auto issued = authority_.issue(name);
      certificates_.push_back(issued);
      const auto at = [] { return "\"127.0.0.1:" + std::to_string(free_port()) + "\""; };
      nodes += "    " + name + ": {internal: " + at() + ", link: " + at() + "}\n";
    }
    for (std::size_t i = 0; i < count; ++i)
      yaml_.push_back("cluster:\n  etcd: {endpoints: [\"" + etcd.url() + "\"]}\n  authority: " +
                      authority_.file() + "\n  certificate: " + certificates_[i].certificate +
                      "\n  key: " + certificates_[i].key + "\n  nodes:\n" + nodes + more);
    for (std::size_t i = 0; i < count; ++i)
      all.push_back(std::make_unique<node>(yaml_[i], nullptr, name_of(i)));
    for (const auto& each : all)
      REQUIRE(eventually([&] { return members(*each) == count; }));
  }
  ~small_cluster() {
    // The etcd goes last: whoever ends gives back what it has.
    for (const auto& each : all)
      if (each->running())
        each->stop(SIGINT);
  }

  static std::string name_of(std::size_t i) { return "n" + std::to_string(i + 1); }
  const std::string& yaml(std::size_t i) const { return yaml_[i]; }
  node& operator[](std::size_t i) { return *all[i]; }

  /// So many members have told this one of themselves.
  static std::size_t members(const node& of) {
    rapidjson::Document seen;
    seen.Parse(of.ask("GET", "/v1/cluster").body.c_str());
    std::size_t count = 0;
    for (const auto& each : seen["nodes"].GetArray())
      if (std::string{each["state"].GetString()} == "member" && each["capacity"].GetInt() > 0)
        ++count;
    return count;
  }

  struct owner {
    std::string node;
    std::int64_t epoch = 0;
  };
  /// As the node sees it; an empty name: nobody's.
  static owner owner_of(const node& seen_by, const std::string& id) {
    rapidjson::Document seen;
    seen.Parse(seen_by.ask("GET", "/v1/cluster").body.c_str());
    for (const auto& each : seen["sandboxes"].GetArray())
      if (each["id"].GetString() == id)
        return {each["node"].GetString(), each["epoch"].GetInt64()};
    return {};
  }
  std::size_t owner_number(const std::string& id) {
    std::string name;
    REQUIRE(eventually([&] {
      name = owner_of(*all[some_running()], id).node;
      return !name.empty();
    }));
    return static_cast<std::size_t>(std::stoi(name.substr(1)) - 1);
  }
  std::size_t some_running() const {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i]->running())
        return i;
    throw std::runtime_error("no node runs");
  }

  etcd_server etcd;
  std::vector<std::unique_ptr<node>> all;

private:
  made_authority authority_;
  std::vector<made_authority::files> certificates_;
  std::vector<std::string> yaml_;
};

/// Asks until it works: what a client does that was told to come again.
exec_outcome sh_patiently(const node& at, const std::string& id, const std::string& script) {
  exec_outcome last;
  REQUIRE(eventually([&] {
    try {
      last = at.sh(id, script);
      return last.exit_code.has_value();
    } catch (const std::exception&) {
      return false;
    }
  }));
  return last;
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

TEST_CASE("nodes that cannot be members are told why", "[cluster]") {
  small_cluster nodes{1};
  const auto fails = [&](const std::string& yaml, const std::string& name) {
    try {
      const node other{yaml, nullptr, name};
    } catch (const std::exception& why) {
      return std::string{why.what()};
    }
    return std::string{"it has started"};
  };
  CHECK(fails(nodes.yaml(0), "n1").find("a node n1 is a member already") != std::string::npos);
  CHECK(fails(nodes.yaml(0), "n7").find("there is no node \"n7\"") != std::string::npos);
  CHECK(fails(nodes.yaml(0), "").find("--node") != std::string::npos);
  nodes.etcd.stand_still();
  CHECK(fails(nodes.yaml(0), "n1").find("etcd") != std::string::npos);
  nodes.etcd.go_on();
}

TEST_CASE("what a client says of nodes is not believed", "[cluster]") {
  small_cluster nodes{2};
  REQUIRE(nodes[0].sh("honest", "true").exit_code == 0);
  const std::string fields = "Insula-Node-From: n2\r\nInsula-Node-Owner: n9\r\n";
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(nodes[i].ask("GET", "/v1/sandbox/honest/running", {}, fields).body ==
          "{\"running\":true}");
}

// Snapshots of whole disks in a cluster: what one node has taken, any other begins with.
#include "tests/e2e/disk_requests.hpp"
#include "tests/e2e/s3_server.hpp"
#include "tests/e2e/small_cluster.hpp"
#include "tests/support/temp_dir.hpp"

#include <atomic>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace insula::test;

namespace {

constexpr auto npos = std::string::npos;

/// One with a copy, of a sandbox with these files.
std::string take_copied(const node& it, const std::string& box) {
  auto made = take(it, box);
  REQUIRE(eventually([&] { return is_shared(it, made); }));
  return made;
}

/// Until it can be made: what its clients are told meanwhile is to come again.
std::string make_patiently(const node& it, const std::string& snapshot) {
  std::string box;
  REQUIRE(eventually([&] {
    try {
      const auto made = it.ask("POST", "/v1/sandbox", {}, "Insula-Snapshot: " + snapshot + "\r\n");
      if (made.status == 200)
        box = member(made.body, "id");
      return made.status == 200 && it.sh(box, "true").exit_code == 0;
    } catch (const std::exception&) {
      return false;
    }
  }));
  return box;
}

void drain(small_cluster& nodes, std::size_t which, std::size_t asked) {
  REQUIRE(nodes[asked].ask("POST", "/v1/cluster/drain/" + small_cluster::name_of(which)).status ==
          202);
  REQUIRE(eventually([&] { return nodes[which].log().find("cluster.drained node=") != npos; }));
}

} // namespace

TEST_CASE("every node answers for every snapshot", "[cluster]") {
  const temp_dir place;
  small_cluster nodes{3, copies_in(place)};
  said(nodes[0], "abc", "echo one > file");
  const auto first = take(nodes[1], "abc");
  said(nodes[2], "abc", "echo two > file; touch more");
  const auto second = take(nodes[2], "abc", R"({"name":"second"})");
  for (const auto& each : nodes.all) {
    const auto found = each->ask("GET", "/v1/snapshot/" + second).body;
    CHECK(member(found, "parent") == first);
    CHECK(member(found, "name") == "second");
    const auto all = each->ask("GET", "/v1/sandbox/abc/snapshots").body;
    CHECK(all.find(first) != npos);
    CHECK(all.find(second) != npos);
    CHECK(each->ask("GET", "/v1/snapshot/" + second + "/tree").body.find(first) != npos);
    CHECK(each->ask("GET", "/v1/snapshot/nothing").status == 404);
    REQUIRE(eventually([&] { // One that has no bytes has them brought, once there is a copy.
      const auto changes = each->ask("GET", "/v1/snapshot/" + second + "/diff");
      return changes.status == 200 && changes.body.find("/workspace/more") != npos;
    }));
  }

  INFO("a sandbox begins with one where its bytes are");
  const auto at = nodes.owner_number("abc");
  for (const auto& each : nodes.all) {
    const auto box = make_from(*each, first);
    CHECK(said(*each, box, "cat file") == "one\n");
    CHECK(nodes.owner_number(box) == at);
  }

  INFO("back to one, and siblings");
  CHECK(nodes[(at + 1) % 3]
          .ask("POST", "/v1/sandbox/abc/rollback", R"({"snapshot":")" + first + "\"}")
          .status == 200);
  CHECK(said(nodes[(at + 2) % 3], "abc", "cat file") == "one\n");
  const auto fork = nodes[(at + 1) % 3].ask("POST", "/v1/sandbox/abc/fork", R"({"count":2})");
  CHECK(fork.status == 200);
  const auto sibling = member(fork.body, "id");
  CHECK(said(nodes[(at + 2) % 3], sibling, "cat file") == "one\n");

  CHECK(nodes[(at + 1) % 3].ask("DELETE", "/v1/snapshot/" + second).status == 204);
  CHECK(nodes[(at + 2) % 3].ask("DELETE", "/v1/snapshot/" + second).status == 404);
  CHECK(member(nodes[at].ask("GET", "/v1/snapshot/" + second).body, "state") == "deleted");
}

TEST_CASE("a fork is told of by every node", "[cluster]") {
  const temp_dir place;
  small_cluster nodes{2, copies_in(place)};
  const auto made =
    nodes[0].ask("POST", "/v1/sandboxes",
                 R"({"image":{"uri":"host"},"timeout":600,"entrypoint":["tail","-f","/dev/null"],)"
                 R"("resourceLimits":{}})");
  const auto id = member(made.body, "id");
  said(nodes[0], id, "echo one > file");
  const auto fork = nodes[1].ask("POST", "/v1/sandboxes/" + id + "/fork", R"({"timeout":600})");
  INFO(fork.body);
  REQUIRE(fork.status == 202);
  const auto sibling = member(fork.body, "id");
  for (const auto& each : nodes.all) {
    const auto told = each->ask("GET", "/v1/forks/" + sibling);
    INFO(told.body);
    CHECK(member(told.body, "sourceSandboxId") == id);
    CHECK(each->ask("GET", "/v1/forks/nothing").status == 404);
    CHECK(said(*each, sibling, "cat file") == "one\n");
  }
}

TEST_CASE("a chain of snapshots goes over three nodes, of which the first ones are lost",
          "[cluster]") {
  const temp_dir place;
  small_cluster nodes{3, copies_in(place)};
  said(nodes[0], "abc", "echo 1 > file; mkdir ~/bin; echo tool > ~/bin/tool");
  const auto a = nodes.owner_number("abc");
  std::vector<std::string> chain{take_copied(nodes[0], "abc")};

  drain(nodes, a, a);
  const auto at_b = make_patiently(nodes[a], chain[0]);
  const auto b = nodes.owner_number(at_b);
  CHECK(b != a);
  said(nodes[b], at_b, "echo 2 >> file");
  chain.push_back(take_copied(nodes[a], at_b));

  drain(nodes, b, a);
  const auto at_c = make_patiently(nodes[b], chain[1]);
  const auto c = nodes.owner_number(at_c);
  CHECK(c != a);
  CHECK(c != b);
  said(nodes[a], at_c, "echo 3 >> file");
  chain.push_back(take_copied(nodes[b], at_c));
  CHECK(member(nodes[c].ask("GET", "/v1/snapshot/" + chain[2]).body, "parent") == chain[1]);

  nodes[a].crash_both();
  nodes[b].crash_both();
  const std::string lines[] = {"1\n", "1\n2\n", "1\n2\n3\n"};
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const auto box = make_patiently(nodes[c], chain[i]);
    CHECK(said(nodes[c], box, "cat file; cat ~/bin/tool") == lines[i] + "tool\n");
  }
  const auto tree = nodes[c].ask("GET", "/v1/snapshot/" + chain[0] + "/tree").body;
  for (const auto& each : chain)
    CHECK(tree.find(each) != npos);
  nodes[a].start();
  nodes[b].start();
  CHECK(eventually([&] { return small_cluster::members(nodes[c]) == 3; }));
  CHECK(said(nodes[a], make_patiently(nodes[a], chain[2]), "cat file") == lines[2]);
}

TEST_CASE("a snapshot that was acknowledged as shared outlives its node", "[cluster]") {
  const temp_dir place;
  small_cluster nodes{2, copies_in(place, "interval: 0, acknowledge: shared")};
  said(nodes[0], "abc", "echo 0 > file");
  const auto at = nodes.owner_number("abc");
  auto& lost = nodes[at];
  auto& other = nodes[1 - at];
  std::mutex guard;
  std::vector<std::string> acknowledged; // With the guard.
  std::atomic<bool> over = false;
  std::jthread taker{[&] {
    while (!over)
      try {
        lost.sh("abc", "n=$(cat file); echo $((n + 1)) > file");
        const auto made = lost.ask("POST", "/v1/sandbox/abc/snapshot");
        const std::lock_guard hold{guard};
        if (made.status == 200)
          acknowledged.push_back(member(made.body, "id"));
      } catch (const std::exception&) {
        return;
      }
  }};
  REQUIRE(eventually([&] {
    const std::lock_guard hold{guard};
    return acknowledged.size() >= 5;
  }));
  lost.crash_both(); // One is on its way, or its copy.
  over = true;
  taker.join();
  for (std::size_t i = 0; i < acknowledged.size(); ++i) {
    const auto box = make_patiently(other, acknowledged[i]);
    CHECK(said(other, box, "cat file") == std::to_string(i + 1) + "\n");
    CHECK(other.ask("DELETE", "/v1/sandbox/" + box).status == 204);
  }
  lost.start();
}

TEST_CASE("a snapshot that has no copy yet waits for its node", "[cluster]") {
  const snapshot_keys keys;
  s3_server service;
  small_cluster nodes{2, "snapshots: {endpoint: \"" + service.endpoint() +
                           "\", bucket: data, interval: 0}\n"};
  said(nodes[0], "abc", "echo kept > file");
  service.kill();
  const auto made = take(nodes[0], "abc");
  const auto at = nodes.owner_number("abc");
  auto& other = nodes[1 - at];
  nodes[at].crash_both();
  CHECK(eventually([&] {
    const auto box = other.ask("POST", "/v1/sandbox", {}, "Insula-Snapshot: " + made + "\r\n");
    return box.status == 200 && other.sh(member(box.body, "id"), "true")
                                    .refusal.find("is on a node that is not there") != npos;
  }));
  nodes[at].start(); // It has the bytes, so the snapshot is its again.
  service.start();
  CHECK(said(other, make_patiently(other, made), "cat file") == "kept\n");
  CHECK(eventually([&] { return is_shared(other, made); }));
}

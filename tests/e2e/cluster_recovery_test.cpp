// What a node had, at another one: files, what was defined, and what was due.
#include "tests/e2e/s3_server.hpp"
#include "tests/e2e/small_cluster.hpp"
#include "tests/support/metrics_text.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <thread>

using namespace insula::test;

namespace {

constexpr std::string_view persistent = "Insula-Persistent: true\r\n";

std::string in_directory(const temp_dir& place, const std::string& interval) {
  return "snapshots: {directory: " + (place / "there").string() + ", interval: " + interval + "}\n";
}

exec_outcome run(const node& at, const std::string& id, const std::string& script,
                 std::string_view fields = {}, http_answer* head = nullptr) {
  exec_stream stream{at.port(), id, exec_body({"bash", "-c", script}), fields};
  if (head != nullptr)
    *head = stream.head();
  return stream.rest();
}

/// Until it works, with the head of the answer that did.
exec_outcome run_patiently(const node& at, const std::string& id, const std::string& script,
                           std::string_view fields, http_answer& head) {
  exec_outcome last;
  REQUIRE(eventually([&] {
    try {
      last = run(at, id, script, fields, &head);
      return last.exit_code.has_value();
    } catch (const std::exception&) {
      return false;
    }
  }));
  return last;
}

/// Until the node has kept one that was begun after this.
void await_snapshot(const node& of, const std::string& id) {
  const auto kept = [&] {
    return metrics_page{of.ask("GET", "/metrics").body}.value("insula_snapshots_kept_total");
  };
  const auto before = kept();
  REQUIRE(eventually([&] {
    REQUIRE(of.sh(id, "true").exit_code == 0); // Only what is used is kept.
    return kept() >= before + 2;
  }));
}

std::string in_seconds(int seconds) {
  const auto when = std::time(nullptr) + seconds;
  std::tm parts{};
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", ::gmtime_r(&when, &parts));
  return text;
}

std::string id_in(const std::string& body) {
  rapidjson::Document read;
  read.Parse(body.c_str());
  return read.HasMember("id") ? read["id"].GetString() : "";
}

} // namespace

TEST_CASE("after the loss of its node a persistent sandbox goes on at another one", "[cluster]") {
  const temp_dir place;
  std::unique_ptr<s3_server> service;
  std::string more = in_directory(place, "1s");
  SECTION("with a directory that all nodes have") {}
  SECTION("with a bucket") {
    service = std::make_unique<s3_server>();
    more = "snapshots: {endpoint: \"" + service->endpoint() + "\", bucket: data, interval: 1s}\n";
  }
  const snapshot_keys keys;
  small_cluster nodes{3, more};
  REQUIRE(run(nodes[0], "kept",
              "mkdir dir; echo here > dir/file; head -c 3000000 /dev/urandom > large", persistent)
            .exit_code == 0);
  const std::string session = R"({"id":"s","cwd":"/workspace/dir","env":{"WORD":"kept too"}})";
  REQUIRE(nodes[1].ask("POST", "/v1/sandbox/kept/session", session).status == 200);
  REQUIRE(nodes[2]
            .ask("PUT", "/v1/sandbox/kept/network",
                 R"({"default":"deny","rules":[{"action":"allow","target":"kept.example.org"}]})")
            .status == 200);
  const auto sum = nodes[0].sh("kept", "sha256sum large").out;
  const auto at = nodes.owner_number("kept");
  await_snapshot(nodes[at], "kept");
  nodes[at].crash_both();
  http_answer head;
  auto& other = nodes[(at + 1) % 3];
  const auto said = run_patiently(other, "kept", "cat dir/file; sha256sum large", {}, head);
  CHECK(said.out == "here\n" + sum);
  CHECK(head.fields["insula-recovered"].starts_with("20"));
  // Once is enough, wherever it is asked.
  for (const auto next : {(at + 1) % 3, (at + 2) % 3}) {
    CHECK(run(nodes[next], "kept", "true", {}, &head).exit_code == 0);
    CHECK(head.fields.count("insula-recovered") == 0);
  }
  auto& third = nodes[(at + 2) % 3];
  exec_stream in_session{third.port(), "kept", exec_body({"eval", "pwd; echo $WORD"}),
                         "Session-Id: s\r\n"};
  CHECK(in_session.rest().out == "/workspace/dir\nkept too\n");
  CHECK(third.ask("GET", "/v1/sandbox/kept/network").body.find("kept.example.org") !=
        std::string::npos);
  nodes[at].start(); // It finds what was left there, and ends it.
  CHECK(eventually([&] { return small_cluster::members(other) == 3; }));
  CHECK(nodes[at].sh("kept", "cat dir/file").out == "here\n");
}

TEST_CASE("a node that ends by SIGINT keeps its persistent sandboxes for the others", "[cluster]") {
  const temp_dir place;
  small_cluster nodes{2, in_directory(place, "1h")}; // Only what is kept at the end is there.
  REQUIRE(
    run(nodes[0], "kept", "echo here > file; echo outside > /tmp/file", persistent).exit_code == 0);
  const auto at = nodes.owner_number("kept");
  CHECK(nodes[at].stop(SIGINT) == 0);
  http_answer head;
  CHECK(run_patiently(nodes[1 - at], "kept", "cat file /tmp/file", {}, head).out ==
        "here\noutside\n");
  CHECK(head.fields["insula-recovered"].starts_with("20"));
  nodes[at].start();
}

TEST_CASE("what is due at a lost node is done by another one, unasked", "[cluster]") {
  small_cluster nodes{2};
  const std::string wanted =
    R"({"image":{"uri":"host"},"timeout":600,"entrypoint":["tail","-f","/dev/null"],)"
    R"("resourceLimits":{}})";
  const auto made = nodes[0].ask("POST", "/v1/sandboxes", wanted);
  INFO(made.body);
  REQUIRE(made.status == 202);
  const auto id = id_in(made.body);
  const auto at = nodes.owner_number(id);
  REQUIRE(nodes[0]
            .ask("POST", "/v1/sandboxes/" + id + "/renew-expiration",
                 R"({"expiresAt":")" + in_seconds(8) + "\"}")
            .status == 200);
  nodes[at].crash_both();
  // Nobody asks for it: it is its alarm that is looked for.
  auto& other = nodes[1 - at];
  CHECK(
    eventually([&] { return other.log().find("sandbox.deleted id=" + id) != std::string::npos; }));
  CHECK(other.ask("GET", "/v1/sandboxes/" + id).status == 404);
  nodes[at].start();
}

TEST_CASE("a node that is drained loses nothing of persistent sandboxes that was acknowledged",
          "[cluster]") {
  const temp_dir place;
  small_cluster nodes{2, in_directory(place, "1h")}; // Only what is handed over is kept.
  REQUIRE(run(nodes[0], "drained", "echo 0 > log", persistent).exit_code == 0);
  const auto at = nodes.owner_number("drained");
  int count = 0;
  std::jthread drain;
  // One appends all the time, at both nodes in turn, and asks again where it is told to.
  int done_elsewhere = 0;
  const auto end = std::chrono::steady_clock::now() + 2min;
  while (done_elsewhere < 10 && count < 3000 && std::chrono::steady_clock::now() < end) {
    const auto& asked = nodes[static_cast<std::size_t>(count) % 2];
    try {
      const auto said = run(asked, "drained", "echo " + std::to_string(count + 1) + " >> log");
      if (said.exit_code != 0)
        continue;
    } catch (const std::exception&) {
      continue;
    }
    if (++count == 20) // In the middle of it.
      drain = std::jthread{
        [&] { nodes[1 - at].ask("POST", "/v1/cluster/drain/" + small_cluster::name_of(at)); }};
    if (count % 5 == 0)
      done_elsewhere +=
        small_cluster::owner_of(asked, "drained").node == small_cluster::name_of(1 - at);
  }
  CHECK(done_elsewhere == 10);
  std::string all = "0\n";
  for (int i = 1; i <= count; ++i)
    all += std::to_string(i) + "\n";
  // What was not acknowledged and asked for again may be there twice.
  CHECK(nodes[at].sh("drained", "uniq log").out == all);
}

TEST_CASE("a command with a key is not run again where its sandbox was drained to", "[cluster]") {
  const temp_dir place;
  small_cluster nodes{2, in_directory(place, "1h")};
  const auto once = std::string{persistent} + "Idempotency-Key: once\r\n";
  const std::string script = "echo ran >> log";
  REQUIRE(run(nodes[0], "keyed", script, once).exit_code == 0);
  REQUIRE(run(nodes[0], "keyed", script, once).exit_code == 0); // It is told again.
  const auto at = nodes.owner_number("keyed");
  REQUIRE(nodes[1 - at].ask("POST", "/v1/cluster/drain/" + small_cluster::name_of(at)).status ==
          202);
  REQUIRE(eventually([&] { return small_cluster::owner_of(nodes[1 - at], "keyed").node.empty(); }));
  exec_outcome said;
  REQUIRE(eventually([&] {
    try {
      said = run(nodes[1 - at], "keyed", script, once);
      return said.status != 503;
    } catch (const std::exception&) {
      return false;
    }
  }));
  CHECK(said.status == 410);
  CHECK(said.refusal.find("result_gone") != std::string::npos);
  CHECK(small_cluster::owner_of(nodes[1 - at], "keyed").node == small_cluster::name_of(1 - at));
  CHECK(sh_patiently(nodes[1 - at], "keyed", "cat log").out == "ran\n");
}

TEST_CASE("all nodes are replaced one after the other, and no client notices", "[cluster]") {
  const temp_dir place;
  small_cluster nodes{3, in_directory(place, "1h")}; // Only what is handed over is kept.
  const std::vector<std::string> ids{"rolla", "rollb", "rollc", "rolld"};
  for (const auto& id : ids)
    REQUIRE(run(nodes[0], id, "echo 0 > log", persistent).exit_code == 0);
  // What stands before them: it sends nobody to a node that is about to be stopped.
  struct place_in_turn {
    std::atomic<bool> out = false;
    std::atomic<int> under_way = 0;
  };
  std::array<place_in_turn, 3> turns;
  std::mutex mutex;
  std::vector<std::string> wrong; // With the mutex.
  std::vector<int> counts(ids.size(), 0);
  std::atomic<bool> over = false;
  std::atomic<int> appended = 0, refusals = 0;
  const auto append = [&](std::size_t which, std::size_t at) {
    const auto& id = ids[which];
    exec_outcome said;
    try {
      exec_stream stream{
        nodes[at].port(), id,
        exec_body({"sh", "-c", "echo " + std::to_string(counts[which] + 1) + " >> log"})};
      said = stream.rest();
      if (said.status == 200 && said.exit_code == 0) {
        ++counts[which];
        ++appended;
        return;
      }
      if (said.status == 503 && stream.head().fields.count("retry-after") == 1) {
        ++refusals;
        std::this_thread::sleep_for(20ms);
        return;
      }
    } catch (const std::exception& why) {
      said.error = why.what();
    }
    const std::lock_guard lock{mutex};
    wrong.push_back(id + " at " + small_cluster::name_of(at) + ": " + std::to_string(said.status) +
                    ' ' + said.refusal + said.error);
  };
  std::vector<std::jthread> clients;
  for (std::size_t i = 0; i < ids.size(); ++i)
    clients.emplace_back([&, i] {
      for (std::size_t turn = i; !over; ++turn) {
        auto& at = turns[turn % turns.size()];
        ++at.under_way;
        if (!at.out)
          append(i, turn % turns.size());
        --at.under_way;
      }
    });
  for (std::size_t i = 0; i < 3; ++i) {
    const auto name = small_cluster::name_of(i);
    auto& other = nodes[(i + 1) % 3];
    CHECK(other.ask("POST", "/v1/cluster/drain/" + name).status == 202);
    CHECK(eventually([&] {
      for (const auto& id : ids)
        if (small_cluster::owner_of(other, id).node == name)
          return false;
      return true;
    }));
    turns[i].out = true;
    CHECK(eventually([&] { return turns[i].under_way == 0; }));
    CHECK(nodes[i].stop(SIGTERM) == 0);
    nodes[i].start();
    CHECK(eventually([&] { return small_cluster::members(other) == 3; }));
    turns[i].out = false;
    // All three have some of it again.
    CHECK(eventually([&, before = appended.load()] { return appended >= before + 30; }));
  }
  over = true;
  clients.clear();
  CHECK(wrong == std::vector<std::string>{});
  INFO(refusals << " were told to come again");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK(counts[i] > 20);
    std::string all;
    for (int line = 0; line <= counts[i]; ++line)
      all += std::to_string(line) + "\n";
    CHECK(sh_patiently(nodes[i % 3], ids[i], "cat log").out == all);
  }
}

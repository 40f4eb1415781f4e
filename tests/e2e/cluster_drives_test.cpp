// Drives in a cluster: sandboxes begin where their drives are, and a drive moves with what is on
// it.
#include "tests/e2e/disk_requests.hpp"
#include "tests/e2e/small_cluster.hpp"
#include "tests/support/metrics_text.hpp"
#include "tests/support/temp_dir.hpp"

#include <csignal>
#include <string>

using namespace insula::test;

namespace {

constexpr std::size_t sandbox_digits = 26;

http_answer make_drive(const node& at, const std::string& name) {
  return at.ask("POST", "/v2/sandboxes/drives/" + name, R"({"projectId":"p"})");
}
std::string drive_id(const node& at, const std::string& name) {
  return member(make_drive(at, name).body, "id").substr(4);
}
http_answer make_box(const node& at, const std::string& name, const std::string& drive,
                     const std::string& mode = "read-write") {
  return at.ask("POST", "/v3/sandboxes",
                R"({"projectId":"p","timeout":600000,"name":")" + name +
                  R"(","mounts":{"/data":{"drive":")" + drive + R"(","mode":")" + mode + "\"}}}");
}
std::string id_in(const http_answer& made) {
  INFO(made.body);
  REQUIRE(made.status == 200);
  return member(made.body, "currentSessionId").substr(4, sandbox_digits);
}
http_answer stop(const node& at, const http_answer& made) {
  return at.ask("POST",
                "/v2/sandboxes/sessions/" + member(made.body, "currentSessionId") + "/stop");
}
http_answer resume(const node& at, const std::string& name) {
  return at.ask("GET", "/v2/sandboxes/" + name + "?projectId=p&resume=true");
}
/// Until it can be: what its clients are told meanwhile is to come again.
http_answer resume_patiently(const node& at, const std::string& name) {
  http_answer got;
  const bool resumed = eventually([&] {
    try {
      got = resume(at, name);
      return got.status == 200;
    } catch (const std::exception&) {
      return false;
    }
  });
  INFO(got.status << ' ' << got.body);
  CHECK(resumed);
  return got;
}

} // namespace

TEST_CASE("a sandbox begins at the node that has its drive", "[cluster]") {
  const temp_dir place;
  small_cluster nodes{2, copies_in(place)};
  REQUIRE(make_drive(nodes[0], "shared").status == 201);
  const auto drive = drive_id(nodes[1], "shared");
  const auto first = make_box(nodes[0], "first", "shared");
  const auto writer = id_in(first);
  const auto at = nodes.owner_number(drive);
  CHECK(nodes.owner_number(writer) == at);
  REQUIRE(eventually([&] { // The other one hears of that a moment later.
    return small_cluster::owner_of(nodes[1 - at], drive).node == small_cluster::name_of(at);
  }));
  said(nodes[1 - at], writer, "echo word > /data/file");

  INFO("by way of the other node as well");
  CHECK(make_box(nodes[1 - at], "second", "shared").status == 409);
  for (const auto* name : {"r1", "r2", "r3", "r4"}) {
    const auto reader = id_in(make_box(nodes[1 - at], name, "shared", "read-only"));
    CHECK(nodes.owner_number(reader) == at);
    CHECK(said(nodes[1 - at], reader, "cat /data/file") == "word\n");
  }
  CHECK(nodes[1 - at].ask("DELETE", "/v2/sandboxes/drives/shared?projectId=p").status == 409);

  INFO("one that was stopped begins there again");
  REQUIRE(stop(nodes[1 - at], first).status == 200);
  const auto again = resume(nodes[1 - at], "first");
  INFO(again.body);
  REQUIRE(again.status == 200);
  CHECK(nodes.owner_number(writer) == at);
  CHECK(said(nodes[0], writer, "cat /data/file") == "word\n");
}

TEST_CASE("a drive goes on at another node when its own is lost or drained", "[cluster]") {
  const temp_dir place;
  small_cluster nodes{2, copies_in(place)};
  REQUIRE(make_drive(nodes[0], "moves").status == 201);
  const auto made = make_box(nodes[0], "box", "moves");
  const auto box = id_in(made);
  const auto drive = drive_id(nodes[0], "moves");
  const auto at = nodes.owner_number(drive);
  auto& other = nodes[1 - at];
  said(nodes[0], box, "echo kept > /data/file");
  const auto kept = [&] {
    return metrics_page{nodes[at].ask("GET", "/metrics").body}.value("insula_disk_snapshots_kept_"
                                                                     "total");
  };
  const auto before = kept();
  const auto stopped = stop(nodes[0], made);
  REQUIRE(stopped.status == 200);
  const std::string before_id = "\"snapshot\":{\"id\":\"snap_";
  const auto left =
    stopped.body.substr(stopped.body.find(before_id) + before_id.size(), sandbox_digits);
  REQUIRE(eventually([&] { // Both have copies, of the drive and of the sandbox's own disk.
    return kept() > before && is_shared(nodes[at], left);
  }));

  SECTION("lost") {
    nodes[at].crash_both();
    resume_patiently(other, "box");
    CHECK(said(other, box, "cat /data/file") == "kept\n");
    CHECK(nodes.owner_number(drive) == 1 - at);
    nodes[at].start();
  }
  SECTION("drained") {
    REQUIRE(nodes[at].ask("POST", "/v1/cluster/drain/" + small_cluster::name_of(at)).status == 202);
    REQUIRE(eventually(
      [&] { return small_cluster::owner_of(other, drive).node != small_cluster::name_of(at); }));
    resume_patiently(other, "box");
    CHECK(said(other, box, "cat /data/file") == "kept\n");
    CHECK(nodes.owner_number(box) == 1 - at);
  }
}

// Copies of snapshots of whole disks, away from their node, through the real program.
#include "tests/e2e/disk_requests.hpp"
#include "tests/e2e/s3_server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/planned_crash.hpp"
#include "tests/support/temp_dir.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

using namespace insula::test;
namespace fs = std::filesystem;

namespace {

constexpr auto npos = std::string::npos;

void await_copy(const node& it, const std::string& snapshot) {
  REQUIRE(eventually([&] { return is_shared(it, snapshot); }));
}

constexpr const char* make_files =
  "mkdir -p tree/empty ~/bin; echo one > tree/file; ln tree/file tree/same; ln -s file tree/link; "
  "mkfifo tree/pipe; chmod 4755 tree/file; touch -d @1000000000 tree/file; truncate -s 1M "
  "tree/hole; head -c 3000000 /dev/urandom > large; echo tool > ~/bin/tool; touch /tmp/there";
constexpr const char* show_files =
  "cd /workspace; stat -c '%A %h %Y %u' tree/file; cat tree/same ~/bin/tool; readlink tree/link; "
  "test -p tree/pipe && test -d tree/empty && stat -c %s tree/hole; sha256sum large; ls /tmp/there";

} // namespace

TEST_CASE("a snapshot that its node has lost comes back from its copy", "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place)};
  it.keeps_snapshots = true;
  said(it, "abc", make_files);
  // What is written by requests leaves something of the runtime's, where nobody sees it.
  CHECK(it.ask("PUT", "/v1/sandbox/abc/file/workspace/written", "by a request").status == 200);
  const auto files = said(it, "abc", show_files);
  const auto first = take(it, "abc");
  said(it, "abc", "echo two > tree/file; rm /tmp/there");
  const auto second = take(it, "abc");
  await_copy(it, first);
  await_copy(it, second);
  it.remove("abc");
  CHECK(it.stop(SIGINT) == 0);
  lose_disks(it);
  it.start();

  const auto found = it.ask("GET", "/v1/snapshot/" + first).body;
  CHECK(member(found, "state") == "created");
  const auto box = make_from(it, first);
  CHECK(said(it, box, show_files) == files);
  CHECK(said(it, box, "cat written") == "by a request");
  CHECK(said(it, make_from(it, second), "cat tree/same; ls /tmp/there || echo gone")
          .ends_with("two\ngone\n"));
  // They are this node's again, and have nothing of what has brought them back.
  CHECK(it.ask("GET", "/v1/snapshot/" + second + "/diff?from=" + first).body.find("/etc") == npos);
  CHECK(it.stop(SIGINT) == 0);
  it.start();
  CHECK(said(it, box, show_files) == files);

  INFO("what is deleted is forgotten there");
  CHECK(it.ask("DELETE", "/v1/snapshot/" + second).status == 204);
  it.ask("DELETE", "/v1/sandbox/" + box);
  CHECK(it.ask("DELETE", "/v1/snapshot/" + first).status == 204);
  CHECK(eventually([&] { return count_manifests(place) == 1; })); // A sandbox stands on the other.
}

TEST_CASE("a server that ends at any step of a copy leaves the snapshot, and a copy of it",
          "[snapshots][crash][failpoint]") {
  const auto* const step = GENERATE("snapshot.defined", "snapshot.copied", "snapshot.brought");
  CAPTURE(step);
  const temp_dir place;
  node it{copies_in(place)};
  it.keeps_snapshots = true;
  said(it, "abc", "echo kept > file");
  const auto first = take(it, "abc");
  await_copy(it, first);
  it.remove("abc");
  CHECK(it.stop(SIGINT) == 0);
  lose_disks(it);
  {
    const planned_crash plan{step};
    it.start();
  }
  try {
    const auto made = it.ask("POST", "/v1/sandbox", {}, "Insula-Snapshot: " + first + "\r\n").body;
    it.ask("POST", "/v1/sandbox/" + member(made, "id") + "/snapshot");
  } catch (const std::exception&) { // The connection was cut.
  }
  CHECK(it.stop(0) == SIGKILL);
  it.crash_both();
  it.start();
  const auto box = make_from(it, first);
  CHECK(said(it, box, "cat file") == "kept\n");
  const auto another = take(it, box);
  await_copy(it, another);
  await_copy(it, first);
}

TEST_CASE("a server that ends before the copy that is to be acknowledged makes it later",
          "[snapshots][crash][failpoint]") {
  const temp_dir place;
  node it{copies_in(place, "interval: 0, acknowledge: shared")};
  it.keeps_snapshots = true;
  said(it, "abc", "echo kept > file");
  it.crash_server();
  {
    const planned_crash plan{"snapshot.defined"};
    it.start();
  }
  const std::string key = "Idempotency-Key: once\r\n";
  try {
    it.ask("POST", "/v1/sandbox/abc/snapshot", {}, key);
  } catch (const std::exception&) { // The connection was cut.
  }
  CHECK(it.stop(0) == SIGKILL);
  it.start();
  std::string made;
  REQUIRE(eventually([&] {
    const auto answer = it.ask("POST", "/v1/sandbox/abc/snapshot", {}, key);
    if (answer.status != 503)
      made = answer.status == 200 ? member(answer.body, "id") : answer.body;
    return answer.status != 503;
  }));
  CHECK(is_shared(it, made));
  CHECK(it.ask("GET", "/v1/snapshot").body.find(R"("cursor")") == npos);
  CHECK(said(it, make_from(it, made), "cat file") == "kept\n");
}

TEST_CASE("a place that is away keeps nobody waiting, unless copies are what counts",
          "[snapshots]") {
  const bool waits = GENERATE(false, true);
  CAPTURE(waits);
  const snapshot_keys keys;
  s3_server service;
  node it{"snapshots: {endpoint: \"" + service.endpoint() + "\", bucket: data, interval: 0, " +
          (waits ? "acknowledge: shared}" : "acknowledge: node}")};
  it.keeps_snapshots = true;
  said(it, "abc", "echo kept > file");
  const auto good = take(it, "abc");
  CHECK((!waits || is_shared(it, good)));
  await_copy(it, good);
  service.kill();
  const auto answer = it.ask("POST", "/v1/sandbox/abc/snapshot");
  CHECK(answer.status == (waits ? 503 : 200));
  CHECK(said(it, "abc", "cat file") == "kept\n");
  const auto made = member(answer.body, "id");
  if (waits)
    CHECK(it.ask("GET", "/v1/snapshot").body.find(good) != npos); // And no other.
  else
    CHECK_FALSE(is_shared(it, made));
  service.start();
  if (waits)
    CHECK(is_shared(it, take(it, "abc")));
  else
    await_copy(it, made); // It is tried again.
}

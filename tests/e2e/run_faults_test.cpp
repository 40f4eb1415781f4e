// Runs that leave their disks where something is wrong: the place for copies is away, the disk is
// full, the clock is another one.
#include "tests/e2e/box_of_project.hpp"
#include "tests/e2e/moved_clock.hpp"
#include "tests/e2e/s3_server.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>

using namespace insula::test;

namespace {

constexpr auto npos = std::string::npos;

std::string status_of(const std::string& sessions) {
  return member(sessions, "status"); // The newest comes first.
}

/// The status of its last session is that one, when it has ended.
void await_status(const node& it, const box_of_project& box, const std::string& status) {
  REQUIRE(eventually([&] { return status_of(box.sessions(it)) == status; }));
}

} // namespace

TEST_CASE("while the place for copies is away a session can be stopped, and its status says so",
          "[runs]") {
  const bool waits = GENERATE(false, true);
  CAPTURE(waits);
  const snapshot_keys keys;
  s3_server service;
  node it{"snapshots: {endpoint: \"" + service.endpoint() + "\", bucket: data, interval: 0, " +
          (waits ? "acknowledge: shared}" : "acknowledge: node}")};
  it.keeps_snapshots = true;
  box_of_project box{"kept"};
  box.make(it);
  said(it, box.id(), "echo 1 > file");
  const auto good = box.stop(it);
  REQUIRE(eventually([&] { return is_shared(it, good); }));
  box.resume_patiently(it);
  said(it, box.id(), "echo 2 > file");

  service.kill();
  const auto left = box.stop(it);
  const auto now = box.look(it).body;
  if (waits) { // What is not where it is to be counts for nothing.
    CHECK(left.empty());
    CHECK(status_of(box.sessions(it)) == "failed");
    CHECK(now.find("\"currentSnapshotId\":\"snap_" + good) != npos);
  } else {
    CHECK(status_of(box.sessions(it)) == "stopped");
    CHECK(now.find("\"currentSnapshotId\":\"snap_" + left) != npos);
  }
  // Its bytes are at the node.
  box.resume_patiently(it);
  CHECK(said(it, box.id(), "cat file; echo 3 > file") == (waits ? "1\n" : "2\n"));
  service.start();
  const auto last = box.stop(it);
  CHECK(eventually([&] { return is_shared(it, last); }));
  box.resume_patiently(it);
  CHECK(said(it, box.id(), "cat file") == "3\n");
}

TEST_CASE("a session whose disk is at a place that is away begins when that is back", "[runs]") {
  const snapshot_keys keys;
  s3_server service;
  node it{"snapshots: {endpoint: \"" + service.endpoint() + "\", bucket: data, interval: 0}"};
  it.keeps_snapshots = true;
  box_of_project box{"away"};
  box.make(it);
  said(it, box.id(), "echo 1 > file");
  const auto left = box.stop(it);
  REQUIRE(eventually([&] { return is_shared(it, left); }));
  CHECK(it.stop(SIGINT) == 0);
  lose_disks(it);
  service.kill();
  it.start();
  const auto refused = box.resume(it);
  INFO(refused.body);
  CHECK(refused.status == 503); // Not 410, after which a client takes it for lost.
  CHECK(box.look(it).body.find("\"currentSnapshotId\":\"snap_" + left) != npos);
  service.start();
  box.resume_patiently(it);
  CHECK(said(it, box.id(), "cat file") == "1\n");
}

TEST_CASE("a session that ends while the disks of the node are full leaves its disk, or says not",
          "[runs]") {
  node it{"runtime: {disk: {pool: 512MiB}}\nsandbox: {limits: {disk: 256MiB}}"};
  it.keeps_snapshots = true;
  box_of_project box{"full"};
  box.make(it);
  said(it, box.id(), "echo 1 > file");
  const auto good = box.stop(it);
  REQUIRE_FALSE(good.empty());
  box.resume_patiently(it);
  said(it, box.id(), "echo 2 > file");
  for (const char* each : {"fillerb", "fillerc", "fillerd"})
    it.sh(each, "head -c 300M /dev/urandom > large; for ((i = 0; i < 3000; ++i)); do "
                "echo x > s$i || break; done; sync");
  const auto left = box.stop(it);
  const bool is_kept = !left.empty();
  CAPTURE(is_kept);
  CHECK(status_of(box.sessions(it)) == (is_kept ? "stopped" : "failed"));
  CHECK(box.look(it).body.find("\"currentSnapshotId\":\"snap_" + (is_kept ? left : good)) != npos);
  for (const char* each : {"fillerb", "fillerc", "fillerd"})
    CHECK(it.remove(each) == 204);
  box.resume_patiently(it);
  CHECK(said(it, box.id(), "cat file") == (is_kept ? "2\n" : "1\n"));
  // The room comes back behind the deletions.
  CHECK(eventually([&] { return it.sh(box.id(), "echo 3 > file && sync").exit_code == 0; }));
  CHECK_FALSE(box.stop(it).empty());
  box.resume_patiently(it);
  CHECK(said(it, box.id(), "cat file") == "3\n");
}

TEST_CASE("clocks that jump by a day neither end sessions nor have them go on", "[runs]") {
  using namespace std::chrono_literals;
  const moved_clock clock{"+0s"};
  node it;
  it.keeps_snapshots = true;
  box_of_project box{"timely"}, brief{"brief"};
  box.make(it);
  int asked = 0;
  const auto server_is_ahead_s = [&] { // What is made now says when that is.
    const auto made =
      it.ask("POST", "/v2/sandboxes/drives/d" + std::to_string(++asked), R"({"projectId":"p"})");
    const std::string key = "\"createdAt\":";
    const auto at = made.body.find(key);
    return at == npos ? 0L
                      : std::stol(made.body.substr(at + key.size(), 10)) -
                          static_cast<long>(::time(nullptr));
  };
  const auto jump = [&](const std::string& to, long seconds) {
    clock.to(to);
    REQUIRE(eventually([&] {
      std::this_thread::sleep_for(200ms); // Each look makes a drive.
      return std::abs(server_is_ahead_s() - seconds) < 100;
    }));
  };
  said(it, box.id(), "echo 1 > file");
  jump("+86400s", 86400);
  CHECK(said(it, box.id(), "cat file; echo 2 > file") == "1\n"); // Its time is not up.
  CHECK_FALSE(box.stop(it).empty());
  box.resume_patiently(it);
  CHECK(said(it, box.id(), "cat file") == "2\n");
  brief.make(it, 12s);
  said(it, brief.id(), "echo kept > file");
  jump("-86400s", -86400);
  CHECK(status_of(brief.sessions(it)) == "running");
  await_status(it, brief, "stopped"); // Its time is.
  CHECK(said(it, box.id(), "cat file; echo 3 > file") == "2\n");
  CHECK(it.stop(SIGTERM) == 0);
  clock.to("+172800s");
  it.start();
  CHECK(said(it, box.id(), "cat file") == "3\n");
  CHECK_FALSE(box.stop(it).empty());
  for (const auto* each : {&box, &brief}) {
    const auto sessions = each->sessions(it);
    INFO(sessions);
    CHECK(status_of(sessions) == "stopped");
    CHECK(sessions.find("\"duration\":-") == npos);
  }
  box.resume_patiently(it);
  CHECK(said(it, box.id(), "cat file") == "3\n");
  brief.resume_patiently(it);
  CHECK(said(it, brief.id(), "cat file") == "kept\n");
}

TEST_CASE("twenty generations of forks of forks have what each has added", "[runs]") {
  node it;
  it.keeps_snapshots = true;
  std::string wanted;
  box_of_project box{"f0"};
  box.make(it);
  for (int i = 0;; ++i) {
    wanted += std::to_string(i) + '\n';
    said(it, box.id(), "echo " + std::to_string(i) + " >> file");
    CHECK_FALSE(box.stop(it).empty());
    if (i == 20)
      break;
    box = box.fork(it, "f" + std::to_string(i + 1));
  }
  box.resume_patiently(it);
  CHECK(said(it, box.id(), "cat file") == wanted);
}

TEST_CASE("a snapshot that is deleted while a session begins with it is gone before or after it",
          "[runs]") {
  node it;
  it.keeps_snapshots = true;
  box_of_project box{"raced"};
  box.make(it);
  int begun = 0, refused = 0;
  for (int i = 0; i < 60 && (i < 12 || begun == 0 || refused == 0); ++i) {
    said(it, box.id(), "echo " + std::to_string(i) + " > file");
    const auto left = box.stop(it);
    http_answer deleted;
    const auto remove = [&] { deleted = it.ask("DELETE", "/v2/sandboxes/snapshots/snap_" + left); };
    const auto pause = std::chrono::microseconds{i % 6 * 400};
    std::thread other{[&] {
      if (i % 2 == 0)
        std::this_thread::sleep_for(pause);
      remove();
    }};
    if (i % 2 == 1)
      std::this_thread::sleep_for(pause);
    const auto got = box.resume(it);
    other.join();
    CAPTURE(i, got.body, deleted.body);
    CHECK(deleted.status == 200);
    if (got.status == 200) {
      ++begun;
      box.took(got);
      CHECK(said(it, box.id(), "cat file") == std::to_string(i) + "\n");
    } else {
      ++refused;
      CHECK(got.status == 410);
      CHECK(got.body.find("snapshot_not_found") != npos);
      CHECK(it.ask("DELETE", "/v2/sandboxes/raced?projectId=p").status == 200);
      box.make(it);
    }
    CHECK(it.ask("GET", "/v2/sandboxes/snapshots/snap_" + left).body.find("\"deleted\"") != npos);
  }
  CHECK(begun > 0); // It is a race, and both have been first.
  CHECK(refused > 0);
}

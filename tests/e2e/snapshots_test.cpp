// Disks of persistent sandboxes: what becomes of them when the real program, its spawner, or the
// place of the copies goes.
#include "tests/e2e/disk_requests.hpp"
#include "tests/e2e/s3_server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <unistd.h>
#include <utility>

using namespace insula::test;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view persistent = "Insula-Persistent: true\r\n";

/// A command's output, with further header fields.
exec_outcome run(const node& it, const std::string& id, const std::string& script,
                 std::string_view fields = {}, http_answer* head = nullptr) {
  exec_stream stream{it.port(), id, exec_body({"bash", "-c", script}), fields};
  if (head != nullptr)
    *head = stream.head();
  return stream.rest();
}

std::string recovered(const http_answer& head) {
  const auto at = head.fields.find("insula-recovered");
  return at == head.fields.end() ? "" : at->second;
}

double snapshots_kept(const node& it) {
  return metrics_page{it.ask("GET", "/metrics").body}.value("insula_snapshots_kept_total");
}

/// Until a snapshot counts that was begun after this: the next one may have begun before, and each
/// is counted a moment before its record has it.
void await_snapshot(const node& it) {
  const auto before = snapshots_kept(it);
  REQUIRE(eventually([&] { return snapshots_kept(it) >= before + 3; }));
}

/// Until all that was used has been kept: then no more are taken.
void await_last_snapshot(const node& it) {
  double seen = -1;
  auto since = std::chrono::steady_clock::now();
  REQUIRE(eventually([&] {
    const auto now = std::chrono::steady_clock::now();
    if (const auto kept = std::exchange(seen, snapshots_kept(it)); kept != seen)
      since = now;
    return now - since > 4s; // Of an interval of 1 s.
  }));
}

/// What keeps a sandbox in use, so that snapshots go on.
class busy {
public:
  busy(const node& it, const std::string& id)
      : stream_(it.port(), id, exec_body({"bash", "-c", "echo up; exec sleep 1000"})) {
    REQUIRE(stream_.next());
  }

private:
  exec_stream stream_;
};

const std::string make_files = R"(
  mkdir -p dir/sub; echo hello > dir/sub/file; head -c 6000000 /dev/urandom > large
  echo '#!/bin/sh' > script; chmod 750 script; ln -s dir/sub/file link; : > empty
  printf x > 'odd name *'; echo secret > private; chmod 000 private; truncate -s 100M sparse
  touch -d 2001-02-03T04:05:06.789 dir/sub/file
  echo 'out of the workspace' > /tmp/outside; echo settings > ~/.settings
  )";
const std::string show_files = R"(
  find . -printf '%p %y %m %s %l %U\n' | sort; cat dir/sub/file link script | sha256sum
  sha256sum large sparse | cut -c1-64; stat -c '%y' dir/sub/file; cat /tmp/outside; ls -A ~)";

} // namespace

TEST_CASE("files of a persistent sandbox are there after kill -9 of server and spawner",
          "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place, "interval: 1s")};
  it.keeps_snapshots = true;
  REQUIRE(run(it, "kept", make_files, persistent).exit_code == 0);
  REQUIRE(it.sh("gone", "echo x > file").exit_code == 0);
  const auto before = it.sh("kept", show_files).out;
  REQUIRE(before.find("./dir/sub/file") != std::string::npos);
  {
    const busy using_it{it, "kept"};
    await_snapshot(it);
  }
  it.crash_both();
  it.start();
  http_answer head;
  CHECK(run(it, "kept", show_files, {}, &head).out == before);
  CAPTURE(it.log());
  CHECK(
    std::regex_match(recovered(head), std::regex{R"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ)"}));
  run(it, "kept", "true", {}, &head);
  CHECK(recovered(head).empty()); // It has been told.
  // Holes are holes again.
  CHECK(std::stol(it.sh("kept", "stat -c %b sparse").out) < 1000);
  CHECK(run(it, "gone", "ls -A", {}, &head).out.empty());
  CHECK(recovered(head).empty());
  CHECK(it.sh("kept", "echo more >> dir/sub/file && cat dir/sub/file").out == "hello\nmore\n");
}

TEST_CASE("files are there after their spawner alone has died", "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place, "interval: 1s")};
  it.keeps_snapshots = true;
  REQUIRE(run(it, "kept", "echo one > file", persistent).exit_code == 0);
  {
    const busy using_it{it, "kept"};
    await_snapshot(it);
    it.crash_spawner();
  }
  it.stop(SIGTERM);
  it.start();
  http_answer head;
  CHECK(run(it, "kept", "cat file", {}, &head).out == "one\n");
  CHECK_FALSE(recovered(head).empty());
}

TEST_CASE("SIGINT keeps the files of persistent sandboxes, and SIGTERM the sandboxes",
          "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place)};
  it.keeps_snapshots = true;
  REQUIRE(run(it, "a", "echo a > file", persistent).exit_code == 0);
  REQUIRE(run(it, "b", "echo b > file", persistent).exit_code == 0);
  REQUIRE(it.sh("c", "echo c > file").exit_code == 0);
  CHECK(snapshots_kept(it) == 0);
  http_answer head;

  CHECK(it.stop(SIGTERM) == 0);
  it.start();
  CHECK(run(it, "a", "cat file", {}, &head).out == "a\n");
  CHECK(recovered(head).empty());

  CHECK(it.stop(SIGINT) == 0);
  CHECK(count_manifests(place) == 2);
  lose_disks(it);
  it.start();
  CHECK(run(it, "a", "cat file", {}, &head).out == "a\n");
  CHECK_FALSE(recovered(head).empty());
  CHECK(run(it, "b", "cat file", {}, &head).out == "b\n");
  CHECK_FALSE(recovered(head).empty());
  CHECK(run(it, "c", "ls -A", {}, &head).out.empty());
  // Once persistent, it stays so.
  CHECK(it.sh("a", "echo again > file").exit_code == 0);
  CHECK(it.stop(SIGINT) == 0);
  CHECK(count_manifests(place) <= 4); // Those before go, if there is time for that.
  it.start();
  CHECK(it.sh("a", "cat file").out == "again\n");
}

TEST_CASE("files that an image has in the workspace are as the sandbox had them", "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place)};
  it.keeps_snapshots = true;
  REQUIRE(it.sh("first", "true").exit_code == 0); // Now there is an image.
  it.stop(SIGINT);
  const fs::path workspace{it.state() + "/images/host/root/workspace"};
  REQUIRE(fs::is_directory(workspace));
  fs::create_directories(workspace / "app/of the image"); // Root's.
  fs::create_directories(workspace / "data/full");
  fs::create_directory(workspace / "mine");
  std::ofstream{workspace / "app/file"} << "image's";
  std::ofstream{workspace / "mine/file"} << "image's";
  for (const auto* each : {"data", "data/full", "mine", "mine/file"})
    REQUIRE(::chown((workspace / each).c_str(), 1000, 1000) == 0);
  it.start();
  const std::string show = "find . -printf '%p %y %m %l\n' | sort; cat app/file mine/* 2>&1";
  REQUIRE(
    run(it, "a", "rm -r data && ln -s x data && rm mine/file && echo new > mine/new", persistent)
      .exit_code == 0);
  const auto before = it.sh("a", show).out;
  CHECK(before.find("./app/of the image") != std::string::npos);
  for (int i = 0; i < 2; ++i) {
    CHECK(it.stop(SIGINT) == 0);
    lose_disks(it);
    it.start();
    const auto after = it.sh("a", show);
    CAPTURE(after.refusal);
    CHECK(after.out == before);
  }
  CHECK(it.sh("a", "stat -c %U app/file mine/new").out == "root\nsandbox\n");
  CHECK(it.sh("a", "echo more >> mine/new && cat mine/new").out == "new\nmore\n");
}

TEST_CASE("hard links and names of more than 4096 bytes come back", "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place)};
  it.keeps_snapshots = true;
  const std::string deep =
    "n=$(printf 'd%.0s' $(seq 200)); for i in $(seq 25); do mkdir -p $n && cd $n; done; ";
  REQUIRE(run(it, "a",
              "echo x > one; ln one two; " + deep + "echo deep > file; ln -s /etc/passwd out",
              persistent)
            .exit_code == 0);
  CHECK(it.stop(SIGINT) == 0);
  lose_disks(it);
  it.start();
  const auto seen = it.sh("a", "stat -c %h one; " + deep + "cat file; readlink out");
  CAPTURE(seen.refusal, it.log());
  CHECK(seen.out == "2\ndeep\n/etc/passwd\n");
}

TEST_CASE("a mounted bucket is in no snapshot, and hides no files from one", "[snapshots]") {
  const s3_server service;
  s3_client{service}.put("foreign", "of the bucket");
  const temp_dir place;
  node it{copies_in(place) + "network: {allow_private: [127.0.0.1/32]}"};
  it.keeps_snapshots = true;
  REQUIRE(run(it, "a", "mkdir -p above && echo own > above/own", persistent).exit_code == 0);
  const auto mount = [&](const std::string& path, const std::string& more = {}) {
    const auto answer =
      it.ask("POST", "/v1/sandbox/a/mount",
             R"({"bucket":"data","mountPath":")" + path + R"(","options":{)" + more +
               R"("endpoint":")" + service.endpoint() + R"(","credentials":{"accessKeyId":")" +
               s3_server::key + R"(","secretAccessKey":")" + s3_server::secret + R"("}}})");
    CAPTURE(answer.body);
    REQUIRE(answer.status == 200);
  };
  SECTION("below the workspace, where it was moved to") {
    mount("/workspace/above/data");
    REQUIRE(it.sh("a", "mv above below && cat below/data/foreign").out == "of the bucket");
    CHECK(it.stop(SIGINT) == 0);
    CHECK(count_manifests(place) == 1);
    it.start();
    CHECK(it.sh("a", "cat below/own; find . -name foreign | grep below").out == "own\n");
  }
  SECTION("over the workspace, which has files") {
    mount("/workspace", R"("s3fsOptions":["nonempty"],)");
    REQUIRE(it.sh("a", "cat foreign; ls above 2>&1 | wc -l").out == "of the bucket1\n");
    CHECK(it.stop(SIGINT) == 0);
    CHECK(count_manifests(place) == 1);
    it.start();
    CHECK(it.sh("a", "cat foreign").out == "of the bucket"); // It is mounted again.
    REQUIRE(it.ask("POST", "/v1/sandbox/a/unmount", R"({"mountPath":"/workspace"})").status == 200);
    CHECK(it.sh("a", "cd /workspace; ls; cat above/own").out == "above\nown\n");
  }
}

TEST_CASE("a sandbox that is stopped for being idle has its files again", "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place, "interval: 0, all: true") +
          "sandbox: {freeze_after: 500ms, stop_after: 1s}"};
  it.keeps_snapshots = true;
  REQUIRE(it.sh("a", "echo a > file; setsid sleep 1000 > /dev/null 2>&1 &").exit_code == 0);
  REQUIRE(eventually([&] { return it.sandbox_groups().empty(); }));
  CHECK(count_manifests(place) == 1);
  http_answer head;
  CHECK(run(it, "a", "cat file; pgrep sleep", {}, &head).out == "a\n");
  CHECK_FALSE(recovered(head).empty());
}

TEST_CASE("a sandbox whose snapshot cannot be had does not start, and starts once it can",
          "[snapshots]") {
  ::setenv("SNAPSHOTS_ACCESS_KEY_ID", s3_server::key.c_str(), 1);
  ::setenv("SNAPSHOTS_SECRET_ACCESS_KEY", s3_server::secret.c_str(), 1);
  s3_server service;
  {
    node it{"snapshots: {endpoint: \"" + service.endpoint() + "\", bucket: data, interval: 0}"};
    it.keeps_snapshots = true;
    REQUIRE(run(it, "a", make_files, persistent).exit_code == 0);
    const auto before = it.sh("a", show_files).out;
    CHECK(it.stop(SIGINT) == 0);
    lose_disks(it);
    const s3_client client{service};
    CHECK(client.list().size() >= 3);
    service.kill();
    it.start();
    for (int i = 0; i < 2; ++i) {
      const auto refused = it.sh("a", "true");
      CAPTURE(refused.refusal);
      CHECK(refused.status == 503);
      CHECK(refused.refusal.find("cannot be had") != std::string::npos);
      CHECK(refused.refusal.find(s3_server::secret) == std::string::npos);
    }
    CHECK(it.sh("new", "echo fine").out == "fine\n"); // Others are not concerned.
    service.start();
    http_answer head;
    CHECK(run(it, "a", show_files, {}, &head).out == before);
    CHECK_FALSE(recovered(head).empty());
    CHECK(it.log().find(s3_server::secret) == std::string::npos);

    // A piece that was changed is found out.
    CHECK(it.stop(SIGINT) == 0);
    lose_disks(it);
    for (const auto& [name, size] : client.list())
      if (name.find("/pieces/") != std::string::npos)
        client.put(name, "something else");
    it.start();
    const auto damaged = it.sh("a", "true");
    CHECK(damaged.status == 503);
    CHECK(damaged.refusal.find("damaged") != std::string::npos);
    CHECK(it.remove("a") == 204);
    CHECK(it.sh("a", "ls -A; echo empty").out == "empty\n");
    CHECK(eventually([&] {
      const auto all = client.list();
      return std::none_of(all.begin(), all.end(), [](const auto& each) {
        return each.first.find("/manifests/") != std::string::npos;
      });
    }));
  }
  ::unsetenv("SNAPSHOTS_ACCESS_KEY_ID");
  ::unsetenv("SNAPSHOTS_SECRET_ACCESS_KEY");
}

TEST_CASE("deleting a persistent sandbox forgets its files", "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place)};
  it.keeps_snapshots = true;
  REQUIRE(run(it, "a", "echo a > file", persistent).exit_code == 0);
  CHECK(it.stop(SIGINT) == 0);
  it.start();
  CHECK(count_manifests(place) == 1);
  CHECK(it.remove("a") == 204);
  CHECK(eventually([&] { return count_manifests(place) == 0; }));
  http_answer head;
  CHECK(run(it, "a", "ls -A; echo empty", {}, &head).out == "empty\n");
  CHECK(recovered(head).empty());
}

TEST_CASE("a server that is killed while files are put back does it again, all of it",
          "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place)};
  it.keeps_snapshots = true;
  REQUIRE(run(it, "a",
              "for i in $(seq 3000); do head -c 9000 /dev/urandom > f$i; done; sync; ls | wc -l",
              persistent)
            .exit_code == 0);
  const auto before = it.sh("a", "cat * | sha256sum; ls | wc -l").out;
  CHECK(it.stop(SIGINT) == 0);
  lose_disks(it);
  for (const auto* step :
       {"snapshot.entry#1000", "snapshot.end", "snapshot.brought", "sandbox.made"}) {
    CAPTURE(step);
    ::setenv("INSULA_FAILPOINT", step, 1); // There the server kills itself.
    it.start();
    ::unsetenv("INSULA_FAILPOINT");
    http_connection asking{it.port()};
    asking.send(http_request("POST", "/v1/sandbox/a/exec", exec_body({"true"})));
    const int status = it.stop(SIGCONT); // Which it ends without.
    CHECK(status == SIGKILL);
  }
  it.start();
  CHECK(it.sh("a", "cat * | sha256sum; ls | wc -l").out == before);
}

TEST_CASE("a wish for a persistent sandbox is read with care", "[snapshots]") {
  node it;
  CHECK(run(it, "a", "true", "Insula-Persistent: false\r\n").exit_code == 0);
  CHECK(run(it, "a", "true", "Insula-Persistent: perhaps\r\n").status == 400);
}

TEST_CASE("an id can be persistent from the beginning", "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place)};
  it.keeps_snapshots = true;
  const auto made = it.ask("POST", "/v1/sandbox", {}, persistent);
  REQUIRE(made.status == 200);
  const auto id = made.body.substr(7, 26);
  REQUIRE(it.sh(id, "echo a > file").exit_code == 0);
  CHECK(it.stop(SIGINT) == 0);
  it.start();
  CHECK(it.sh(id, "cat file").out == "a\n");
}

TEST_CASE("thirty persistent sandboxes are kept and come back together", "[snapshots]") {
  const temp_dir place;
  node it{copies_in(place, "interval: 1s")};
  it.keeps_snapshots = true;
  const auto id_of = [](std::size_t i) {
    return std::string{"box"} + static_cast<char>('a' + i % 26) + static_cast<char>('a' + i / 26);
  };
  const auto made = at_once(30, [&](std::size_t i) {
    return run(it, id_of(i), "echo " + std::to_string(i) + " > file", persistent).exit_code;
  });
  CHECK(std::count(made.begin(), made.end(), 0) == 30);
  await_last_snapshot(it);
  CHECK(count_manifests(place) >= 30);
  CHECK(it.stop(SIGINT) == 0);
  lose_disks(it);
  it.start();
  const auto seen = at_once(30, [&](std::size_t i) { return run(it, id_of(i), "cat file").out; });
  for (std::size_t i = 0; i < 30; ++i)
    CHECK(seen[i] == std::to_string(i) + "\n");
}

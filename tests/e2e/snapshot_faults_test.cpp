// Snapshots of disks whose sandboxes do their worst, and long chains of them.
#include "tests/e2e/disk_requests.hpp"

#include <string>

using namespace insula::test;

TEST_CASE("a chain of 64 snapshots begins as its first does, without those between",
          "[snapshots]") {
  constexpr int depth = 64;
  node it;
  it.keeps_snapshots = true;
  std::string box = "abc", first, last;
  for (int i = 0; i < depth; ++i) {
    said(it, box, "echo " + std::to_string(i) + " > file-" + std::to_string(i));
    const auto next = take(it, box);
    CHECK(it.remove(box) == 204);
    if (i > 1) // The root and the newest one stay.
      CHECK(it.ask("DELETE", "/v1/snapshot/" + last).status == 204);
    if (i == 0)
      first = next;
    last = next;
    box = make_from(it, next);
  }
  CHECK(said(it, box, "cat file-* | sort -n | tr '\\n' ' '").starts_with("0 1 2 3 4 5 6 7 8 9 "));
  CHECK(said(it, box, "ls file-* | wc -l") == "64\n");
  const auto tree = it.ask("GET", "/v1/snapshot/" + last + "/tree?limit=100").body;
  CHECK(member(tree, "id") == first);
  std::size_t ids = 0;
  for (auto at = tree.find(R"({"id":)"); at != std::string::npos;
       at = tree.find(R"({"id":)", at + 1))
    ++ids;
  CHECK(ids == depth);
  const auto diff = it.ask("GET", "/v1/snapshot/" + last + "/diff?from=" + first).body;
  CHECK(diff.find(R"("path":"/workspace/file-1")") != std::string::npos);
  CHECK(diff.find(R"("path":"/workspace/file-0")") == std::string::npos);
  CHECK(it.remove(box) == 204);
}

TEST_CASE("a snapshot is of one moment, whatever the sandbox does to its names", "[snapshots]") {
  node it;
  it.keeps_snapshots = true;
  const auto renames = it.open("abc", {"bash", "-c",
                                       "mkdir d; touch d/a; echo go; for i in 1 2 3 4; do (while "
                                       ":; do mv d/a d/b; mv d/b d/a; done 2> /dev/null) & done; "
                                       "i=0; while :; do mkdir -p t/$((i += 1)); mv t/$i u-$i; "
                                       "done"});
  REQUIRE(eventually([&] { return it.sh("abc", "test -d u-20").exit_code == 0; }));
  for (int i = 0; i < 5; ++i) {
    const auto box = make_from(it, take(it, "abc"));
    CHECK(said(it, box, "ls d | wc -l") == "1\n");
    CHECK(said(it, box, "ls -d u-* | wc -l | grep -c '^[1-9]'") == "1\n");
    CHECK(it.remove(box) == 204);
  }
  CHECK(it.remove("abc") == 204);
}

TEST_CASE("a snapshot is taken beside a fork bomb, which does not run in what begins with it",
          "[snapshots]") {
  node it;
  it.keeps_snapshots = true;
  said(it, "abc", "echo kept > file");
  const auto bomb = it.open("abc", {"bash", "-c", "b() { b | b & }; b 2> /dev/null; sleep 60"});
  REQUIRE(eventually([&] { return it.processes().size() > node::own_processes + 60; }));
  const auto box = make_from(it, take(it, "abc"));
  CHECK(said(it, box, "cat file") == "kept\n");
  CHECK(it.remove(box) == 204);
  CHECK(it.remove("abc") == 204);
}

TEST_CASE("a sandbox whose disk is used up has a snapshot, and so have its siblings",
          "[snapshots][fork]") {
  node it{"sandbox: {limits: {disk: 64MiB}}"};
  it.keeps_snapshots = true;
  CHECK(said(it, "abc",
             "head -c 200M /dev/zero > big; echo $?; echo 2> /dev/null > more || echo "
             "full")
          .starts_with("1\n"));
  const auto box = make_from(it, take(it, "abc"));
  CHECK(said(it, box,
             "cmp -n 1048576 big /dev/zero && rm big && head -c 30M /dev/zero > other && "
             "sync && echo fits") == "fits\n");
  // It writes to its own disk, and the snapshot still has what it had.
  const auto other = make_from(it, member(it.ask("GET", "/v1/sandbox/abc/snapshots").body, "id"));
  CHECK(said(it, other, "test -s big && echo there") == "there\n");
  for (const auto& each : {box, other, std::string{"abc"}})
    CHECK(it.remove(each) == 204);
}

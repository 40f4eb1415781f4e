// Snapshots of whole disks, forks and rollback, through the real program.
#include "tests/e2e/disk_requests.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"
#include "tests/support/planned_crash.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <sys/wait.h>

using namespace insula::test;
namespace fs = std::filesystem;

namespace {

constexpr auto npos = std::string::npos;

std::vector<std::string> members(std::string json, const std::string& name) {
  std::vector<std::string> all;
  const auto key = '"' + name + "\":\"";
  for (auto at = json.find(key); at != std::string::npos; at = json.find(key, at + 1)) {
    const auto from = at + key.size();
    all.push_back(json.substr(from, json.find('"', from) - from));
  }
  return all;
}

std::string path_of(const std::string& box, const std::string& what) {
  return "/v1/sandbox/" + box + '/' + what;
}

std::string state_of(const node& it, const std::string& snapshot) {
  return member(it.ask("GET", "/v1/snapshot/" + snapshot).body, "state");
}

} // namespace

TEST_CASE("what differs between snapshots, and from the disk in use, is told by path",
          "[snapshots]") {
  node it;
  it.keeps_snapshots = true;
  said(it, "abc", "mkdir tree; echo a > tree/same; echo a > tree/other; echo a > tree/gone");
  const auto first = take(it, "abc");
  said(it, "abc", "echo bcd >> tree/other; rm tree/gone; ln -s x tree/link");
  const auto second = take(it, "abc");
  const std::string other = R"({"path":"/workspace/tree/other","change":"changed","type":"file",)"
                            R"("bytes":6})";
  const std::string three = R"("changes":[{"path":"/workspace/tree/gone","change":"deleted",)"
                            R"("type":"file","bytes":2},{"path":"/workspace/tree/link",)"
                            R"("change":"added","type":"symlink"},)" +
                            other + "]}";
  const auto diff = [&](const std::string& target) {
    const auto answer = it.ask("GET", target);
    INFO(answer.body);
    CHECK(answer.status == 200);
    return answer.body;
  };
  CHECK(diff("/v1/snapshot/" + second + "/diff") == R"({"from":")" + first + R"(",)" + three);
  CHECK(diff("/v1/snapshot/" + second + "/diff?from=" + second) ==
        R"({"from":")" + second + R"(","changes":[]})");
  const auto whole = diff("/v1/snapshot/" + first + "/diff");
  CHECK(whole.find(R"("/workspace/tree/gone","change":"added")") != npos);
  CHECK(whole.find("from") == npos);

  INFO("the disk in use, page by page");
  said(it, "abc", "echo e >> tree/other; echo a > tree/more");
  const auto live = path_of("abc", "diff") + "?from=" + first + "&limit=3";
  const auto page = diff(live);
  const auto cursor = member(page, "cursor");
  REQUIRE_FALSE(cursor.empty());
  CHECK(page.find("tree/more") != npos);
  said(it, "abc", "rm tree/other"); // The other page is of the same moment.
  const auto rest = diff(live + "&cursor=" + cursor);
  CHECK(members(rest, "path") == std::vector<std::string>{"/workspace/tree/other"});
  CHECK(rest.find("cursor") == npos);
  CHECK(diff("/v1/snapshot").find(R"("kind":"automatic")") == npos);
  CHECK(it.ask("GET", live + "&cursor=" + cursor).status == 404); // It has gone with its last page.
  CHECK(members(diff(path_of("abc", "diff")), "path") ==
        std::vector<std::string>{"/workspace/tree/more", "/workspace/tree/other"});

  INFO("bad input");
  for (const auto* query :
       {"?limit=0", "?limit=10001", "?limit=x", "?from=UPPER", "?cursor=!", "?cursor=abcd"})
    CHECK(it.ask("GET", "/v1/snapshot/" + second + "/diff" + query).status == 400);
  CHECK(it.ask("GET", "/v1/snapshot/" + second + "/diff?from=zzzz").status == 404);
  CHECK(it.ask("GET", "/v1/snapshot/zzzz/diff").status == 404);

  INFO("one whose bytes have gone");
  CHECK(it.ask("DELETE", "/v1/snapshot/" + first).status == 204);
  CHECK(it.ask("GET", "/v1/snapshot/" + second + "/diff").status == 404);
  it.remove("abc");
}

TEST_CASE("the whole disk is in a snapshot, and what runs goes on", "[snapshots]") {
  node it;
  it.keeps_snapshots = true;
  said(it, "abc",
       "mkdir -p tree/empty; echo one > tree/file; ln tree/file tree/same; ln -s file tree/link; "
       "mkfifo tree/pipe; chmod 4755 tree/file; touch -d @1000000000 tree/file; "
       "truncate -s 1M tree/hole; cd tree; setsid bash -c 'while :; do sleep 0.1; "
       "done' > /dev/null 2>&1 & echo $! > /workspace/pid");
  const auto snapshot = take(it, "abc", R"({"name":"first","labels":{"a":"1"}})");
  said(it, "abc", "echo two > tree/file; kill -0 $(cat pid)");

  const auto box = make_from(it, snapshot);
  CHECK(said(it, box,
             "cd tree; stat -c '%A %h %Y' file; cat same; readlink link; test -p pipe && test -d "
             "empty && stat -c '%s %b' hole") == "-rwsr-xr-x 2 1000000000\none\nfile\n1048576 0\n");
  CHECK(said(it, "abc", "cat tree/file") == "two\n");
  // Nothing of the source runs there.
  CHECK(it.sh(box, "kill -0 $(cat pid)").exit_code != 0);

  const auto found = it.ask("GET", "/v1/snapshot/" + snapshot);
  CHECK(found.status == 200);
  CHECK(member(found.body, "name") == "first");
  CHECK(member(found.body, "sandbox") == "abc");
  CHECK(found.body.find(R"("labels":{"a":"1"})") != std::string::npos);
  CHECK(found.body.find(R"("sandboxes":1)") != std::string::npos);
  CHECK(member(it.ask("GET", "/v1/sandbox/" + box).body, "snapshot") == snapshot);
  it.remove(box);
  it.remove("abc");
}

TEST_CASE("a snapshot outlives its sandbox, its server, its spawner, and all of them at once",
          "[snapshots][crash]") {
  node it;
  it.keeps_snapshots = true;
  said(it, "abc", "echo kept > file");
  const auto snapshot = take(it, "abc");
  SECTION("the sandbox") {
    CHECK(it.remove("abc") == 204);
  }
  SECTION("the server, in order") {
    CHECK(it.stop(SIGINT) == 0);
    it.start();
  }
  SECTION("kill -9 of the server") {
    it.crash_server();
    it.start();
  }
  SECTION("kill -9 of the spawner") {
    it.crash_spawner();
    CHECK(it.stop(0) != 0); // By itself.
    it.start();
  }
  SECTION("kill -9 of both") {
    it.crash_both();
    it.start();
  }
  const auto box = make_from(it, snapshot);
  CHECK(said(it, box, "cat file") == "kept\n");
  CHECK(it.ask("DELETE", "/v1/snapshot/" + snapshot).status == 204);
  CHECK(state_of(it, snapshot) == "deleted");
  CHECK(said(it, box, "cat file") == "kept\n"); // It stands on what is hidden.
  CHECK(it.ask("DELETE", "/v1/snapshot/" + snapshot).status == 404);
  CHECK(it.ask("POST", "/v1/sandbox", {}, "Insula-Snapshot: " + snapshot + "\r\n").status == 404);
  it.remove(box);
}

TEST_CASE("a sandbox that is stopped begins again with its snapshot", "[snapshots][crash]") {
  node it;
  it.keeps_snapshots = true;
  said(it, "abc", "echo kept > file");
  const auto box = make_from(it, take(it, "abc"));
  said(it, box, "echo lost > other");
  it.crash_both();
  it.start();
  CHECK(said(it, box, "cat file; ls other 2> /dev/null || echo none") == "kept\nnone\n");
}

TEST_CASE("without any configuration a persistent sandbox keeps its whole disk",
          "[snapshots][crash]") {
  node it;
  const std::string persistent = "Insula-Persistent: true\r\n";
  const auto run = [&](const std::string& script) {
    exec_stream stream{it.port(), "abc", exec_body({"bash", "-c", script}), persistent};
    const auto head = stream.head();
    return std::pair{stream.rest(), head};
  };
  REQUIRE(
    run("echo a > file; mkdir -p ~/bin; echo b > ~/bin/tool; touch /tmp/there").first.exit_code ==
    0);
  const auto comes_back = [&] {
    const auto [end, head] = run("cat file ~/bin/tool; ls /tmp/there; echo c >> file");
    CHECK(end.out == "a\nb\n/tmp/there\n");
    CHECK(head.fields.contains("insula-recovered"));
  };
  SECTION("when the server ends in order") {
    CHECK(it.stop(SIGINT) == 0);
    it.start();
    comes_back();
    CHECK(it.stop(SIGINT) == 0);
    it.start();
    CHECK(run("cat file").first.out == "a\nc\n");
  }
  SECTION("as of its last snapshot, after kill -9 of everything") {
    CHECK(it.stop(SIGINT) == 0);
    it.start();
    comes_back();
    it.crash_both(); // Before the next one.
    it.start();
    comes_back();
  }
  // Nobody sees those snapshots, and nothing of them stays.
  CHECK(it.ask("GET", "/v1/snapshot").body == R"({"snapshots":[]})");
  CHECK(it.remove("abc") == 204);
  CHECK(it.stop(SIGINT) == 0);
  CHECK_FALSE(fs::exists(it.state() + "/disk.btrfs"));
}

TEST_CASE("what a persistent sandbox keeps is kept now and then while it is used",
          "[snapshots][crash]") {
  node it{"snapshots: {all: true, interval: 1s}"};
  it.keeps_snapshots = true;
  said(it, "abc", "echo 0 > file");
  const auto waits_for_next = [&] {
    const auto kept = [&] {
      return metrics_page{it.ask("GET", "/metrics").body}.value("insula_disk_snapshots_kept_total");
    };
    const auto before = kept();
    return eventually([&] { return kept() >= before + 2; });
  };
  auto user = it.open("abc", {"bash", "-c", "echo up; sleep 1000"});
  REQUIRE(user.next());
  said(it, "abc", "echo 1 > file");
  REQUIRE(waits_for_next());
  it.crash_both();
  it.start();
  CHECK(said(it, "abc", "cat file") == "1\n");
}

TEST_CASE("a persistent sandbox has what it kept last, where a server ends right after that",
          "[snapshots][crash][failpoint]") {
  // Before its record names the new snapshot, and after that.
  const auto [step, has] =
    GENERATE(std::pair{"snapshot.kept", "1\n"}, std::pair{"snapshot.stood_on", "2\n"});
  CAPTURE(step);
  node it{"snapshots: {all: true, interval: 1h}"};
  it.keeps_snapshots = true;
  said(it, "abc", "echo 1 > file");
  CHECK(it.stop(SIGINT) == 0); // Which keeps it.
  it.start();
  said(it, "abc", "echo 2 > file");
  CHECK(it.stop(SIGTERM) == 0); // Which leaves it as it runs.
  it.configure("snapshots: {all: true, interval: 1s}");
  {
    const planned_crash plan{step};
    it.start();
  }
  try {
    it.sh("abc", "echo used > other; sleep 100");
  } catch (const std::exception&) { // The connection was cut.
  }
  CHECK(it.stop(0) == SIGKILL);
  it.crash_both();
  it.start();
  CHECK(said(it, "abc", "cat file") == has);
}

TEST_CASE("a persistent sandbox that is stopped for being idle has its disk again",
          "[snapshots][idle]") {
  node it{"snapshots: {all: true}\nsandbox: {freeze_after: 300ms, stop_after: 1s}"};
  it.keeps_snapshots = true;
  const auto alone = it.sandbox_groups().size();
  for (int i = 1; i <= 3; ++i) {
    CHECK(said(it, "abc", "echo x >> file; wc -l < file") == std::to_string(i) + "\n");
    REQUIRE(eventually([&] { return it.sandbox_groups().size() == alone; }));
  }
}

TEST_CASE("siblings begin with the disk of a sandbox that runs", "[snapshots][fork]") {
  const node it{"sandbox: {max_instances: 40}"};
  said(it, "abc", "head -c 10000000 /dev/urandom > file; sha256sum file > sum");
  const auto answer =
    it.ask("POST", path_of("abc", "fork"), R"({"count":20,"env":{"WHO":"sibling"}})");
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  const auto ids = members(answer.body, "id");
  REQUIRE(ids.size() == 20);
  for (const auto& id : ids)
    CHECK(said(it, id, "sha256sum -c --quiet sum && echo $WHO") == "sibling\n");
  // Each has its own.
  said(it, ids[0], "echo mine > file");
  CHECK(said(it, ids[1], "sha256sum -c --quiet sum; echo good") == "good\n");
  CHECK(said(it, "abc", "sha256sum -c --quiet sum; echo good") == "good\n");
  // Nobody sees the snapshot behind them.
  CHECK(it.ask("GET", "/v1/snapshot").body == R"({"snapshots":[]})");
  CHECK(it.ask("GET", path_of("abc", "snapshots")).body == R"({"snapshots":[]})");
  CHECK(it.remove("abc") == 204);
  CHECK(said(it, ids[2], "sha256sum -c --quiet sum; echo good") == "good\n");
  for (const auto& id : ids)
    it.remove(id);
}

TEST_CASE("siblings that cannot all be made are not made at all", "[snapshots][fork]") {
  node it{"sandbox: {max_instances: 4}"};
  it.keeps_snapshots = true;
  said(it, "abc", "true");
  const auto alone = it.sandbox_groups().size();
  const auto fork = [&](const std::string& body) {
    return it.ask("POST", path_of("abc", "fork"), body);
  };
  CHECK(fork(R"({"count":5})").status == 503);
  REQUIRE(eventually([&] { return it.sandbox_groups().size() == alone; }));
  CHECK(fork(R"({"ids":["abc"]})").status == 409);
  CHECK(fork(R"({"ids":["def","def"]})").status == 400);
  CHECK(fork(R"({"ids":["D/"]})").status == 400);
  CHECK(fork(R"({"count":0})").status == 400);
  CHECK(fork(R"({"count":101})").status == 400);
  CHECK(fork(R"({"env":{"a=b":"c"}})").status == 400);
  CHECK(fork("[]").status == 400);
  CHECK(it.ask("POST", path_of("nobody", "fork")).status == 404);
  CHECK(fork(R"({"ids":["def","ghi"]})").status == 200);
  CHECK(said(it, "ghi", "echo up") == "up\n");
}

TEST_CASE("a request with a key that comes again makes nothing anew", "[snapshots][fork]") {
  node it;
  it.keeps_snapshots = true;
  const std::string key = "Idempotency-Key: once\r\n";
  said(it, "abc", "echo 1 > file");
  const auto first = take(it, "abc", {}, key);
  said(it, "abc", "echo 2 > file");
  CHECK(take(it, "abc", {}, key) == first);
  CHECK(members(it.ask("GET", path_of("abc", "snapshots")).body, "id") ==
        std::vector<std::string>{first});
  const auto siblings = it.ask("POST", path_of("abc", "fork"), R"({"count":2})", key);
  CHECK(siblings.status == 200);
  said(it, "abc", "echo 3 > file");
  CHECK(it.ask("POST", path_of("abc", "fork"), R"({"count":2})", key).body == siblings.body);
  for (const auto& id : members(siblings.body, "id"))
    CHECK(said(it, id, "cat file") == "2\n");
  const auto made = it.ask("POST", "/v1/sandbox", {}, "Insula-Snapshot: " + first + "\r\n" + key);
  CHECK(made.status == 200);
  CHECK(it.ask("POST", "/v1/sandbox", {}, "Insula-Snapshot: " + first + "\r\n" + key).body ==
        made.body);
  CHECK(it.ask("POST", "/v1/sandbox", {}, key).body == made.body); // As it always was.
  CHECK(it.ask("POST", path_of("abc", "fork"), R"({"ids":["def"]})", key).status == 400);
}

TEST_CASE("a sandbox goes back to a snapshot in place", "[snapshots][rollback]") {
  node it;
  it.keeps_snapshots = true;
  said(it, "abc", "echo good > file");
  const auto snapshot = take(it, "abc");
  said(it, "abc", "echo bad > file; rm -rf /usr/local/*; echo x > more");
  REQUIRE(it.ask("POST", path_of("abc", "session"), R"({"id":"s1"})").status == 200);
  auto running = it.open("abc", {"bash", "-c", "echo up; sleep 1000"});
  REQUIRE(running.next());
  const auto answer =
    it.ask("POST", path_of("abc", "rollback"), R"({"snapshot":")" + snapshot + "\"}");
  INFO(answer.body);
  CHECK(answer.status == 200);
  CHECK(member(answer.body, "snapshot") == snapshot);
  CHECK(member(answer.body, "state") == "running");
  const auto rest = running.rest();
  CHECK(rest.exit_code != 0);
  CHECK(said(it, "abc", "cat file; ls") == "good\nfile\n");
  // The next one comes from there.
  const auto second = take(it, "abc");
  const auto tree = it.ask("GET", "/v1/snapshot/" + second + "/tree");
  CHECK(members(tree.body, "id") == std::vector{snapshot, second});
  CHECK(members(tree.body, "parent") == std::vector{snapshot});

  said(it, "def", "true");
  const auto not_its_own = take(it, "def");
  const auto back = [&](const std::string& to) {
    return it.ask("POST", path_of("abc", "rollback"), R"({"snapshot":")" + to + "\"}").status;
  };
  CHECK(back(not_its_own) == 400);
  CHECK(back("nothere") == 404);
  CHECK(it.ask("POST", path_of("abc", "rollback"), "{}").status == 400);
  CHECK(it.ask("POST", path_of("nobody", "rollback"), R"({"snapshot":")" + second + "\"}").status ==
        404);
  CHECK(back(second) == 200);
}

TEST_CASE("bad requests about snapshots say what is wrong and change nothing", "[snapshots]") {
  const node it;
  said(it, "abc", "true");
  const auto taken = [&](const std::string& body) {
    return it.ask("POST", path_of("abc", "snapshot"), body).status;
  };
  CHECK(taken("no json") == 400);
  CHECK(taken(R"({"name":1})") == 400);
  CHECK(taken(R"({"labels":[]})") == 400);
  CHECK(taken(R"({"labels":{"a":1}})") == 400);
  CHECK(taken(R"({"keep_seconds":0})") == 400);
  CHECK(taken(R"({"keep_last":-1})") == 400);
  CHECK(taken(R"({"name":")" + std::string(300, 'n') + "\"}") == 400);
  CHECK(it.ask("POST", path_of("nobody", "snapshot")).status == 404);
  CHECK(it.ask("GET", "/v1/snapshot/nothere").status == 404);
  CHECK(it.ask("GET", "/v1/snapshot/UPPER").status == 404);
  CHECK(it.ask("DELETE", "/v1/snapshot/nothere").status == 404);
  CHECK(it.ask("GET", "/v1/snapshot/nothere/tree").status == 404);
  CHECK(it.ask("GET", "/v1/snapshot?limit=0").status == 400);
  CHECK(it.ask("GET", "/v1/snapshot?cursor=x").status == 400);
  CHECK(it.ask("POST", "/v1/sandbox", {}, "Insula-Snapshot: UPPER\r\n").status == 400);
  CHECK(it.ask("POST", "/v1/sandbox", {}, "Insula-Snapshot: nothere\r\n").status == 404);
  CHECK(it.ask("GET", "/v1/snapshot").body == R"({"snapshots":[]})");
}

TEST_CASE("lists have the newest snapshots first, in pages", "[snapshots]") {
  node it;
  it.keeps_snapshots = true;
  said(it, "abc", "true");
  // The newest first; of two of the same moment, the one with the lower id.
  std::vector<std::pair<std::int64_t, std::string>> made;
  for (int i = 0; i < 5; ++i) {
    const auto told = it.ask("POST", path_of("abc", "snapshot")).body;
    const std::string key = R"("created_ms":)";
    REQUIRE(told.find(key) != npos);
    made.emplace_back(-std::stoll(told.substr(told.find(key) + key.size())), member(told, "id"));
  }
  std::sort(made.begin(), made.end());
  std::vector<std::string> ids;
  for (const auto& each : made)
    ids.push_back(each.second);
  std::vector<std::string> listed;
  std::string cursor;
  do {
    const auto page = it.ask("GET", path_of("abc", "snapshots") + "?limit=2&cursor=" + cursor);
    REQUIRE(page.status == 200);
    for (const auto& id : members(page.body, "id"))
      listed.push_back(id);
    cursor = member(page.body, "cursor");
  } while (!cursor.empty());
  CHECK(listed == ids);
  take(it, "abc", R"({"keep_last":2})");
  CHECK(eventually(
    [&] { return members(it.ask("GET", path_of("abc", "snapshots")).body, "id").size() == 2; }));
}

TEST_CASE("a server that ends at any step of a snapshot leaves whole ones or none",
          "[snapshots][crash][failpoint]") {
  const auto* const step = GENERATE("snapshot.taken", "snapshot.defined", "snapshot.marked_deleted",
                                    "snapshot.dropped", "snapshot.rolled_back", "sandbox.made");
  CAPTURE(step);
  node it;
  said(it, "abc", "echo kept > file");
  const auto first = take(it, "abc"), spare = take(it, "abc");
  const auto box = make_from(it, first); // It has the file after each start.
  CHECK(it.stop(SIGINT) == 0);
  {
    const planned_crash plan{step};
    it.start();
  }
  const auto say = [&](const std::string& method, const std::string& target,
                       const std::string& body = {}) {
    try {
      it.ask(method, target, body);
    } catch (const std::exception&) { // The connection was cut.
    }
  };
  if (std::string{step} == "sandbox.made") {
    say("POST", path_of(box, "fork"), R"({"ids":["def"]})");
  } else {
    say("POST", path_of(box, "snapshot"));
    say("POST", path_of(box, "rollback"), R"({"snapshot":")" + first + "\"}");
    say("DELETE", "/v1/snapshot/" + spare);
  }
  CHECK(it.stop(0) == SIGKILL);
  it.crash_both(); // The spawner as well, at the same time.
  it.start();
  // What there is works, and is listed; what is not listed is not there.
  CHECK(state_of(it, first) == "created");
  for (const auto& id : members(it.ask("GET", "/v1/snapshot").body, "id")) {
    const auto one = make_from(it, id);
    CHECK(said(it, one, "cat file") == "kept\n");
    CHECK(it.remove(one) == 204);
    CHECK(it.ask("DELETE", "/v1/snapshot/" + id).status == 204);
  }
  CHECK(said(it, box, "cat file") == "kept\n");
  for (const auto& id : {std::string{"abc"}, box, std::string{"def"}})
    CHECK(it.remove(id) == 204);
  CHECK(it.ask("GET", "/v1/snapshot").body == R"({"snapshots":[]})");
  if (std::string{step} == "snapshot.marked_deleted") // Its alarm does what was not done.
    CHECK(eventually([&] { return it.log().find("snapshot.freed id=" + spare) != npos; }));
  // Nothing of any snapshot takes room: an image without one goes with its spawner.
  CHECK(it.stop(SIGINT) == 0);
  CHECK_FALSE(fs::exists(it.state() + "/disk.btrfs"));
}

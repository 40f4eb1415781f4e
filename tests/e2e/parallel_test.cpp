#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <set>

using namespace insula::test;

namespace {

/// Tells one sandbox from another, also from its successor of the same id.
const std::string who = "stat -Lc %i /proc/self/ns/pid; cut -d ' ' -f 22 /proc/1/stat";

std::string id_of(std::size_t i) {
  return "box" + std::string(1, static_cast<char>('a' + i / 26)) + static_cast<char>('a' + i % 26);
}

} // namespace

TEST_CASE("fifteen simultaneous first requests share one sandbox", "[parallel]") {
  const node it;
  for (const std::string id : {"a", "b", "c"}) {
    const auto all =
      at_once(15, [&](std::size_t) { return it.sh(id, who + "; echo x >> marks").out; });
    CHECK(std::set<std::string>(all.begin(), all.end()).size() == 1);
    CHECK(it.sh(id, who).out == all.front());
    CHECK(it.sh(id, "wc -l < marks").out == "15\n");
  }
  std::set<std::string> slots;
  for (const auto& each : it.sandbox_groups())
    slots.insert(each.substr(each.rfind('/')));
  CHECK(slots.size() == 3);
  // Of different kinds.
  const auto kinds = at_once(12, [&](std::size_t i) {
    switch (i % 4) {
      case 0: return it.sh("d", "true").status;
      case 1: return it.ask("GET", "/v1/sandbox/d/running").status;
      case 2: return it.ask("PUT", "/v1/sandbox/d/file/workspace/" + std::to_string(i), "x").status;
      default: return it.ask("GET", "/v1/sandbox/d/file/workspace/nothing").status - 204;
    }
  });
  CHECK(kinds == std::vector<int>(12, 200));
  CHECK(it.sh("d", "ls | wc -l").out == "3\n");
}

TEST_CASE("a hundred commands run at once in one sandbox", "[parallel]") {
  const node it;
  REQUIRE(it.sh("a", "mkfifo gate").exit_code == 0);
  // All of them are running at the same moment, because none goes on before the last has come.
  const auto all = at_once(100, [&](std::size_t i) {
    const auto n = std::to_string(i);
    const auto got =
      it.sh("a", "touch here." + n +
                   "; while [ $(ls | grep -c here) -lt 100 ]; do sleep 0.2; done; echo " + n +
                   "; exit " + n);
    return std::pair{got.out, got.exit_code.value_or(-1)};
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].first == std::to_string(i) + "\n");
    CHECK(all[i].second == static_cast<int>(i));
  }
}

TEST_CASE("two hundred quick commands in tens", "[parallel]") {
  const node it;
  const auto all = at_once(10, [&](std::size_t worker) {
    int good = 0;
    for (int i = 0; i < 20; ++i) {
      const auto text = std::to_string(worker) + "-" + std::to_string(i);
      const auto got = it.exec("a", {"echo", text});
      good += got.out == text + "\n" && got.exit_code == 0 && got.complete;
    }
    return good;
  });
  CHECK(all == std::vector<int>(10, 20));
}

TEST_CASE("thirty sandboxes at once see nothing of each other", "[parallel]") {
  const node it;
  const auto all = at_once(30, [&](std::size_t i) {
    const auto id = id_of(i);
    REQUIRE(it.sh(id, "echo " + id + " > mine; " + who).exit_code == 0);
    return it.sh(id, "cat mine; ls | wc -l; hostname; ps -e --no-headers | wc -l").out;
  });
  for (std::size_t i = 0; i < all.size(); ++i)
    CHECK(all[i].starts_with(id_of(i) + "\n1\n" + id_of(i) + "\n"));
  const auto gone = at_once(30, [&](std::size_t i) { return it.remove(id_of(i)); });
  CHECK(gone == std::vector<int>(30, 204));
  CHECK(it.sandbox_groups().empty());
}

TEST_CASE("deleting ends twenty running commands, none of them with 0", "[parallel][delete]") {
  const node it;
  const auto before = it.sh("a", who + "; echo old > old").out;
  std::vector<std::unique_ptr<exec_stream>> streams;
  for (int i = 0; i < 20; ++i) {
    const std::string script =
      i % 2 == 0 ? "echo up; trap '' TERM; sleep 1000" : "echo up; while :; do echo y; done";
    streams.push_back(
      std::make_unique<exec_stream>(it.port(), "a", exec_body({"bash", "-c", script})));
    REQUIRE(streams.back()->next()->data.starts_with("up\n"));
  }
  CHECK(it.remove("a") == 204); // Which waits a minute for its answer; they would go on for longer.
  CHECK(it.sandbox_groups().empty());
  for (auto& each : streams) {
    const auto got = each->rest();
    CHECK_FALSE(got.exit_code);
    if (got.complete)
      CHECK(got.error.find("\"code\":\"exec_") != std::string::npos);
  }
  const auto again = it.sh("a", who + "; ls -A");
  CHECK(again.exit_code == 0);
  CHECK(again.out.find("old") == std::string::npos);
  CHECK(again.out != before);
}

TEST_CASE("deleting twice, what never was, and many times at once is 204", "[parallel][delete]") {
  const node it;
  CHECK(it.remove("never") == 204);
  CHECK(it.sandbox_groups().empty());
  REQUIRE(it.exec("a", {"true"}).exit_code == 0);
  CHECK(it.remove("a") == 204);
  CHECK(it.remove("a") == 204);
  REQUIRE(it.exec("a", {"true"}).exit_code == 0);
  CHECK(at_once(10, [&](std::size_t) { return it.remove("a"); }) == std::vector<int>(10, 204));
  CHECK(it.sandbox_groups().empty());
}

TEST_CASE("deletes of an id among its commands leave it usable and lose no answer",
          "[parallel][delete]") {
  const node it;
  const auto all = at_once(12, [&](std::size_t worker) {
    int odd = 0;
    for (int i = 0; i < 15; ++i) {
      if (worker % 4 == 0) {
        odd += it.remove("a") != 204;
      } else {
        const auto got = it.sh("a", "echo begin; echo end");
        // It has run to its end, or it has not; never does a part of it pass for all.
        const bool whole = got.exit_code == 0 && got.out == "begin\nend\n";
        const bool cut = !got.exit_code && (got.status == 200 || got.status >= 500);
        const bool killed = got.exit_code && got.exit_code != 0;
        odd += !whole && !cut && !killed;
      }
    }
    return odd;
  });
  CHECK(all == std::vector<int>(12, 0));
  CHECK(it.remove("a") == 204);
  CHECK(it.sh("a", "ls -A; echo fine").out == "fine\n");
}

TEST_CASE("a sandbox survives that a command kills everything it may", "[parallel]") {
  const node it;
  auto other = it.open("a", {"bash", "-c", "echo up; sleep 1000"});
  REQUIRE(other.next());
  CHECK(it.sh("a", "kill -9 1; kill -9 -1; kill -9 $$").exit_code == 137);
  CHECK(other.rest().exit_code == 137);
  CHECK(it.sh("a", "echo fine").out == "fine\n");
  CHECK(it.ask("GET", "/v1/sandbox/a/running").body == R"({"running":true})");
}

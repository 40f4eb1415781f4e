// Sandboxes that are paused and resumed, in the real program.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <sstream>
#include <vector>

using namespace insula::test;

namespace {

int pause(const node& it, const std::string& id) {
  return it.ask("POST", "/v1/sandboxes/" + id + "/pause").status;
}
int resume(const node& it, const std::string& id) {
  return it.ask("POST", "/v1/sandboxes/" + id + "/resume").status;
}
bool is_paused(const node& it, const std::string& id) {
  return it.ask("GET", "/v1/sandboxes/" + id).body.find(R"("state":"Paused")") != std::string::npos;
}

/// In seconds, by the clock that the sandboxes have as well.
double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Says again and again what time it is.
const std::string clock_script = "while :; do echo $EPOCHREALTIME >> beats; sleep 0.01; done";

std::vector<double> beats(const node& it) {
  std::istringstream lines{it.sh("a", "cat beats").out};
  std::vector<double> all;
  for (double each = 0; lines >> each;)
    all.push_back(each);
  return all;
}

std::size_t between(const std::vector<double>& all, double from, double to) {
  return static_cast<std::size_t>(
    std::count_if(all.begin(), all.end(), [&](double each) { return each > from && each < to; }));
}

} // namespace

TEST_CASE(
  "a paused sandbox stands still, under the next server too, and goes on when it is resumed",
  "[pause]") {
  node it;
  const std::string session = "Session-Id: s\r\n";
  const auto in_session = [&](const std::string& script) {
    return exec_stream{it.port(), "a", exec_body({"bash", "-c", script}), session}.rest();
  };
  REQUIRE(it.sh("a", "(" + clock_script + ") > /dev/null 2>&1 &").exit_code == 0);
  REQUIRE(exec_stream{it.port(), "a", exec_body({"export", "WHO=me"}), session}.rest().exit_code ==
          0);
  REQUIRE(eventually([&] { return !beats(it).empty(); }));
  CHECK(resume(it, "a") == 409);
  REQUIRE(pause(it, "a") == 202);
  const auto paused = now();
  CHECK(pause(it, "a") == 409);
  CHECK(is_paused(it, "a"));
  SECTION("of one server") {
    std::this_thread::sleep_for(300ms);
  }
  SECTION("of two, of which the first was killed") {
    it.crash_server();
    it.start();
    CHECK(is_paused(it, "a"));
    CHECK(
      eventually([&] { return it.log().find("sandbox.adopted id=a") != std::string::npos; }, 60s));
    std::this_thread::sleep_for(300ms);
    CHECK(is_paused(it, "a"));
  }
  auto waits = std::async(std::launch::async, [&] { return it.sh("a", "echo later").out; });
  std::this_thread::sleep_for(100ms);
  const auto resumed = now();
  REQUIRE(resume(it, "a") == 202);
  CHECK(waits.get() == "later\n");
  CHECK_FALSE(is_paused(it, "a"));
  CHECK(eventually([&] { return between(beats(it), resumed, now()) > 0; }));
  const auto all = beats(it);
  CHECK(between(all, 0, paused) > 0);
  CHECK(between(all, paused, resumed) == 0);
  CHECK(in_session("echo $WHO").out == "me\n");
}

TEST_CASE("a command that runs while its sandbox is paused goes on with its stream", "[pause]") {
  const node it;
  auto running = it.open("a", {"bash", "-c",
                               "echo up; until [ -e go ]; do sleep 0.01; done; "
                               "echo on"});
  REQUIRE(running.next());
  REQUIRE(pause(it, "a") == 202);
  auto write = std::async(std::launch::async, [&] {
    return it.ask("PUT", "/v1/sandbox/a/file/workspace/go", "x").status;
  });
  REQUIRE(resume(it, "a") == 202);
  CHECK(write.get() == 200);
  const auto rest = running.rest();
  CHECK(rest.exit_code == 0);
  CHECK(rest.out.ends_with("on\n"));
}

TEST_CASE("a paused sandbox is not stopped for being idle, and can be deleted", "[pause]") {
  const node it{"sandbox: {freeze_after: 500ms, stop_after: 1s}"};
  REQUIRE(it.sh("a", "echo kept > file").exit_code == 0);
  REQUIRE(pause(it, "a") == 202);
  REQUIRE(it.sh("b", "true").exit_code == 0);
  REQUIRE(eventually([&] { return it.log().find("sandbox.idle id=b") != std::string::npos; }, 60s));
  CHECK(it.log().find("sandbox.idle id=a") == std::string::npos);
  CHECK(it.sandbox_groups().size() > 0);
  CHECK(is_paused(it, "a"));
  CHECK(it.ask("DELETE", "/v1/sandboxes/a").status == 204);
  CHECK(it.ask("GET", "/v1/sandboxes/a").status == 404);
  CHECK(eventually([&] { return it.sandbox_groups().empty(); }));
}

TEST_CASE("a paused sandbox of which nothing runs any more stays paused, and starts when it is "
          "resumed and used",
          "[pause]") {
  node it;
  REQUIRE(it.sh("a", "true").exit_code == 0);
  REQUIRE(pause(it, "a") == 202);
  it.crash_both();
  it.start();
  CHECK(is_paused(it, "a"));
  CHECK(it.sandbox_groups().empty());
  auto waits = std::async(std::launch::async, [&] { return it.sh("a", "echo new").out; });
  REQUIRE(resume(it, "a") == 202);
  CHECK(waits.get() == "new\n");
}

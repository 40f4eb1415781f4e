#include "tests/e2e/node.hpp"
#include "tests/e2e/upgrade.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

using namespace insula::test;

namespace fs = std::filesystem;

namespace {

std::string in(const std::string& session) {
  return "Session-Id: " + session + "\r\n";
}

exec_stream open_in(const node& it, const std::string& session, const std::string& script,
                    std::string_view more = {}) {
  return exec_stream{it.port(), "a", exec_body({"eval", script}, more), in(session)};
}

std::string run_in(const node& it, const std::string& session, const std::string& script) {
  return open_in(it, session, script).rest().out;
}

/// Somebody at a terminal, once it is ready.
struct visitor : web_socket_client {
  visitor(const node& at, std::string_view session)
      : web_socket_client(at.port(), "/v1/sandbox/a/pty?session=" + std::string{session}) {
    REQUIRE(head().status == 101);
    auto first = next();
    if (first.kind == frame_kind::binary)
      replay = first.bytes;
  }
  std::string replay;
};

/// Both ways in which a server goes without its sandboxes.
void replace_server(node& it, int signal) {
  const int status = it.stop(signal);
  if (signal == SIGTERM)
    REQUIRE(status == 0);
  it.start();
}

} // namespace

TEST_CASE("what runs in a sandbox goes on when its server is gone, and the next one has it",
          "[adoption]") {
  const int signal = GENERATE(SIGKILL, SIGTERM);
  CAPTURE(signal);
  node it;
  REQUIRE(
    it.sh("a", "echo old > old; setsid sleep 1111 > /dev/null 2>&1 & echo $! > pid").exit_code ==
    0);
  auto stream = it.open("a", {"bash", "-c",
                              "echo up; for ((i = 0;; ++i)); do echo $i; echo $i >> "
                              "count; sleep 0.02; done"});
  REQUIRE(stream.next());
  const auto before = it.processes();
  const auto spawner = it.spawner();
  replace_server(it, signal);
  CHECK_FALSE(stream.rest().exit_code);
  CHECK(it.spawner() == spawner);
  const auto after = it.processes();
  CHECK(std::count_if(before.begin(), before.end(), [&](pid_t each) {
          return std::find(after.begin(), after.end(), each) == after.end();
        }) <= 4); // The server with its children; and a `sleep 0.02`.
  CHECK(it.sh("a", "cat old; kill -0 $(cat pid) && echo lives").out == "old\nlives\n");
  const auto counted = [&] { return std::stoi(it.sh("a", "wc -l < count").out); };
  const auto first = counted();
  CHECK(eventually([&] { return counted() > first + 5; }));
  CHECK(it.log().find("sandbox.adopted") != std::string::npos);
  CHECK(it.remove("a") == 204);
  CHECK(it.sandbox_groups().empty());
}

TEST_CASE("a sandbox keeps its files when the machine has changed under a new server",
          "[adoption]") {
  node it;
  const std::string look = "ls /etc | wc -l; cat /etc/passwd | wc -l; test -e /usr/bin/env";
  const auto before = it.sh("a", look);
  REQUIRE(before.exit_code == 0);
  const fs::path image = it.state() + "/images/host";
  const auto trees = [&] {
    return std::count_if(fs::directory_iterator{image}, {},
                         [](const auto& each) { return each.is_directory(); });
  };
  REQUIRE(it.stop(SIGTERM) == 0);
  std::ofstream{image / "identity"} << "another machine\n";
  it.start();
  CHECK(trees() == 2);
  CHECK(it.sh("a", look).out == before.out);
  CHECK(it.sh("b", look).out == before.out);
  CHECK(it.log().find("sandbox.adopted") != std::string::npos);
  // Nobody stands on the old one any more.
  REQUIRE(it.stop(SIGINT) == 0);
  it.start();
  CHECK(trees() == 1);
  CHECK(it.sh("a", look).out == before.out);
}

TEST_CASE("a terminal that is closed ends neither the server nor a sandbox", "[adoption]") {
  node it;
  REQUIRE(it.sh("a", "sleep 1000 >/dev/null 2>&1 & echo $! > pid").exit_code == 0);
  const auto spawner = it.spawner();
  for (const pid_t each : {it.pid(), spawner, it.gateway()})
    REQUIRE(::kill(each, SIGHUP) == 0);
  REQUIRE(eventually([&] { return it.log().find("config.reloaded") != std::string::npos; }));
  CHECK(it.spawner() == spawner);
  CHECK(it.sh("a", "kill -0 $(cat pid) && curl -s -m 1 http://203.0.113.1; echo").exit_code == 0);
}

TEST_CASE("a planned end is no warning", "[adoption]") {
  node it{"pool: {target: 1}"};
  REQUIRE(it.sh("a", "true").exit_code == 0);
  REQUIRE(it.sh("b", "sleep 1000 >/dev/null 2>&1 & echo").exit_code == 0);
  REQUIRE(it.stop(SIGINT) == 0);
  const auto log = it.log();
  CHECK(log.find("warning sandbox.ended") == std::string::npos);
  CHECK(log.find("pool.dead_slot") == std::string::npos);
  it.start();
}

TEST_CASE("a session keeps its shell and all that it knows over a new server", "[adoption]") {
  const int signal = GENERATE(SIGKILL, SIGTERM);
  CAPTURE(signal);
  node it;
  REQUIRE(
    it.ask("POST", "/v1/sandbox/a/session", R"({"id":"s","env":{"FROM":"the start"},"cwd":"/tmp"})")
      .status == 200);
  CHECK(run_in(it, "s", "x=5; f() { echo f $1; }; mkdir -p d; cd d; echo $FROM") == "the start\n");
  CHECK(run_in(it, "t", "y=6; (sleep 1000; echo late) &").empty());
  // One runs while the server is away, and ends there; another one goes on.
  auto ends = open_in(it, "u", "z=7; echo up; sleep 1; z=8");
  REQUIRE(ends.next());
  auto goes_on = open_in(it, "v", "echo up; for ((n = 0; n < 40; ++n)); do sleep 0.1; done");
  REQUIRE(goes_on.next());
  REQUIRE(it.stop(signal) >= 0);
  std::this_thread::sleep_for(1500ms);
  it.start();
  CHECK(run_in(it, "s", "echo $x $PWD $FROM; f 1") == "5 /tmp/d the start\nf 1\n");
  CHECK(run_in(it, "t", "echo $y; jobs -p | wc -l") == "6\n1\n");
  CHECK(run_in(it, "u", "echo $z") == "8\n");
  CHECK(run_in(it, "v", "echo $n") == "40\n"); // It has waited for its turn.
  CHECK(it.ask("POST", "/v1/sandbox/a/session", R"({"id":"s"})").body.find("already exists") !=
        std::string::npos);
  CHECK(it.ask("DELETE", "/v1/sandbox/a/session/s").status == 204);
  CHECK(it.ask("DELETE", "/v1/sandbox/a/session/s").body.find("not found") != std::string::npos);
  CHECK(run_in(it, "s", "echo [$x] $PWD").starts_with("[] /workspace"));
}

TEST_CASE("a session's definition outlives its shell and its server", "[adoption]") {
  node it;
  REQUIRE(
    it.ask("POST", "/v1/sandbox/a/session", R"({"id":"s","env":{"FROM":"the start"},"cwd":"/tmp"})")
      .status == 200);
  it.crash_both();
  it.start();
  CHECK(run_in(it, "s", "echo $FROM $PWD") == "the start /tmp\n");
  it.crash_both();
  it.start();
  CHECK(it.ask("DELETE", "/v1/sandbox/a/session/s").status == 204);
  it.crash_both();
  it.start();
  CHECK(run_in(it, "s", "echo [$FROM] $PWD") == "[] /workspace\n");
}

TEST_CASE("a terminal is there again with what it showed", "[adoption]") {
  const int signal = GENERATE(SIGKILL, SIGTERM);
  CAPTURE(signal);
  node it;
  {
    visitor one{it, "s"};
    one.until("$ ");
    one.type("z=3; echo 'befo're\n");
    one.until("before\r\n");
    one.type("sleep 1; echo 'meanwh'ile\n");
    one.until("sleep 1");
    REQUIRE(it.stop(signal) >= 0);
  }
  std::this_thread::sleep_for(1200ms);
  it.start();
  visitor again{it, "s"};
  auto seen = again.replay;
  if (seen.find("meanwhile\r\n") == std::string::npos)
    seen += again.until("meanwhile\r\n");
  CHECK(seen.find("before\r\n") != std::string::npos);
  again.type("echo $z$z\n");
  again.until("33\r\n");
  again.type("exit 4\n");
  CHECK(again.to_end().code == 1000);
}

TEST_CASE("a command's time is up when it is up, whoever serves then", "[adoption]") {
  node it;
  auto stream =
    it.open("a", {"bash", "-c", "echo $$ > pid; echo up; sleep 1000"}, R"(,"timeout_ms":3000)");
  REQUIRE(stream.next());
  auto longer = open_in(it, "s", "echo up; sleep 1000", R"(,"timeout_ms":3000)");
  REQUIRE(longer.next());
  it.crash_server();
  it.start();
  CHECK(it.sh("a", "kill -0 $(cat pid) && echo lives").out == "lives\n");
  CHECK(
    eventually([&] { return it.sh("a", "kill -0 $(cat pid) || echo ended").out == "ended\n"; }));
  CHECK(run_in(it, "s", "echo next") == "next\n");
}

TEST_CASE("a sandbox that is deleted as soon as a new server is there is gone", "[adoption]") {
  node it;
  REQUIRE(it.sh("a", "sleep 1000 > /dev/null 2>&1 &").exit_code == 0);
  it.crash_server();
  it.start();
  CHECK(it.remove("a") == 204);
  CHECK(it.sandbox_groups().empty());
  CHECK(it.sh("a", "ls -A; echo fine").out == "fine\n");
}

TEST_CASE("an interrupt from the keyboard ends what earlier servers have started", "[adoption]") {
  node it;
  REQUIRE(it.sh("a", "sleep 1000 > /dev/null 2>&1 &").exit_code == 0);
  it.crash_server();
  it.start();
  const int status = it.stop(SIGINT);
  CHECK(status == 0);
  CHECK(eventually([&] { return it.processes().empty(); }));
}

TEST_CASE("a spawner that has neither a server nor a sandbox ends", "[adoption]") {
  node it;
  REQUIRE(it.sh("a", "true").exit_code == 0);
  REQUIRE(it.remove("a") == 204);
  it.crash_server();
  CHECK(eventually([&] { return it.processes().empty(); }));
  it.start();
  CHECK(it.sh("a", "echo fine").out == "fine\n");
  REQUIRE(it.sh("a", "(sleep 0.5; kill -9 -1) > /dev/null 2>&1 &").exit_code == 0);
}

TEST_CASE("without its spawner nothing is adopted, and nothing is left", "[adoption]") {
  node it;
  REQUIRE(it.sh("a", "echo old > old; sleep 1000 > /dev/null 2>&1 &").exit_code == 0);
  it.crash_server();
  it.crash_spawner();
  it.start();
  CHECK(it.sandbox_groups().empty());
  CHECK(it.sh("a", "ls -A; echo fine").out == "fine\n");
}

TEST_CASE("a server that cannot start leaves what runs to the next one", "[adoption]") {
  node it;
  REQUIRE(it.sh("a", "echo old > old; sleep 1000 > /dev/null 2>&1 &").exit_code == 0);
  it.crash_server();
  it.configure("server: {tls: {certificate: /nowhere, key: /nowhere}}");
  CHECK_THROWS(it.start());
  it.configure("");
  it.start();
  CHECK(it.sh("a", "cat old").out == "old\n");
}

TEST_CASE("servers that come and go many times lose nothing and leave nothing", "[adoption]") {
  node it;
  REQUIRE(it.sh("a", "sleep 1000 > /dev/null 2>&1 & echo $! > pid").exit_code == 0);
  CHECK(run_in(it, "s", "n=0").empty());
  std::size_t files = 0;
  for (int i = 1; i <= 6; ++i) {
    replace_server(it, i % 2 == 0 ? SIGTERM : SIGKILL);
    CHECK(it.sh("a", "kill -0 $(cat pid) && echo lives").out == "lives\n");
    CHECK(run_in(it, "s", "echo $((++n))") == std::to_string(i) + "\n");
    if (i == 1)
      files = open_files(it.spawner());
    CHECK(eventually([&] { return open_files(it.spawner()) <= files; }));
  }
}

TEST_CASE("an upgrade replaces the server, and no client is refused", "[adoption][upgrade]") {
  node it;
  REQUIRE(it.sh("a", "sleep 1000 > /dev/null 2>&1 & echo $! > pid").exit_code == 0);
  CHECK(run_in(it, "s", "x=5").empty());
  std::atomic<bool> over = false;
  std::atomic<int> answered = 0, other = 0;
  std::jthread client{[&] {
    while (!over)
      try {
        (it.ask("GET", "/health").status == 200 ? answered : other)++;
      } catch (const std::exception&) {
        other++;
      }
  }};
  const pid_t before = it.pid();
  pid_t now = 0;
  for (int i = 0; i < 2; ++i) { // And one that was started like this itself.
    auto replacing = start_upgrade(it);
    CHECK(replacing.wait(60s) == 0);
    now = server_in(it.state());
    CHECK(now != before);
    CHECK(it.sh("a", "kill -0 $(cat pid) && echo lives").out == "lives\n");
    CHECK(run_in(it, "s", "echo $x") == "5\n");
  }
  over = true;
  client.join();
  CHECK(answered > 10);
  CHECK(other == 0);
  it.stop(SIGKILL); // Which has ended long ago.
  CHECK(next_server{it}.pid() == now);
}

TEST_CASE("an upgrade to what does not start gives the old program back", "[adoption][upgrade]") {
  node it;
  REQUIRE(it.sh("a", "sleep 1000 > /dev/null 2>&1 & echo $! > pid").exit_code == 0);
  CHECK(run_in(it, "s", "x=5").empty());
  it.configure("server: {tls: {certificate: /nowhere, key: /nowhere}}");
  auto replacing = start_upgrade(it);
  // The old program cannot start with that either, and says so; the sandboxes wait.
  CHECK(replacing.wait(60s) != 0);
  CHECK(complaint_of(it).find("neither program starts") != std::string::npos);
  it.stop(SIGKILL);
  it.configure("");
  it.start();
  CHECK(it.sh("a", "kill -0 $(cat pid) && echo lives").out == "lives\n");
  CHECK(run_in(it, "s", "echo $x") == "5\n"); // Those that could not start had taken it over, too.
}

TEST_CASE("an upgrade to a program that refuses the configuration leaves the server as it is",
          "[adoption][upgrade]") {
  node it;
  REQUIRE(it.sh("a", "echo mine > file").exit_code == 0);
  const pid_t before = it.pid();
  it.configure("server: {threads: many}");
  auto replacing = start_upgrade(it);
  CHECK(replacing.wait(60s) == 1 << 8);
  CHECK(complaint_of(it).find("server.threads") != std::string::npos);
  CHECK(it.running());
  CHECK(server_in(it.state()) == before);
  CHECK(it.sh("a", "cat file").out == "mine\n");
}

TEST_CASE("without a server there is nothing to upgrade", "[adoption][upgrade]") {
  node it;
  const int status = it.stop(SIGINT);
  CHECK(status == 0);
  auto replacing = start_upgrade(it);
  CHECK(replacing.wait(30s) != 0);
  CHECK(complaint_of(it).find("no server runs") != std::string::npos);
}

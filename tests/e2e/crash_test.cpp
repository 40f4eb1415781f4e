#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <set>
#include <sqlite3.h>
#include <sys/wait.h>

using namespace insula::test;

namespace {

/// What a node's store answers; or changes, while nobody else has it open.
std::set<std::string> ask_store(const node& of, const std::string& sql) {
  sqlite3* file = nullptr;
  const auto path = of.state() + "/records/insula.db";
  REQUIRE(sqlite3_open_v2(path.c_str(), &file, SQLITE_OPEN_READWRITE, nullptr) == SQLITE_OK);
  const std::unique_ptr<sqlite3, decltype(&sqlite3_close)> closing{file, sqlite3_close};
  std::set<std::string> found;
  const auto add = [](void* to, int, char** values, char**) {
    static_cast<std::set<std::string>*>(to)->insert(values[0]);
    return 0;
  };
  sqlite3_busy_timeout(file, 10'000);
  REQUIRE(sqlite3_exec(file, sql.c_str(), add, &found, nullptr) == SQLITE_OK);
  return found;
}

/// Who has a `created_ms` in the store of a node whose server has ended.
std::set<std::string> recorded(const node& of) {
  return ask_store(of, "SELECT CAST(owner AS TEXT) FROM entries WHERE key = "
                       "CAST('created_ms' AS BLOB) AND length(value) > 0");
}

/// Servers that are started while it is there kill themselves at the step.
class planned_crash {
public:
  explicit planned_crash(const std::string& step) { ::setenv("INSULA_FAILPOINT", step.c_str(), 1); }
  ~planned_crash() { ::unsetenv("INSULA_FAILPOINT"); }
};

/// None: the connection was cut.
std::optional<int> status_of(const node& of, std::string_view method, std::string_view target) {
  try {
    const auto status = of.ask(method, target).status;
    return status == 0 ? std::nullopt : std::optional{status};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string id_of(std::size_t i) {
  return "box" + std::string(1, static_cast<char>('a' + i));
}

} // namespace

TEST_CASE(
  "after kill -9 of server and spawner nothing is left, and every acknowledged record stands",
  "[crash]") {
  node it;
  std::set<std::string> answered;
  for (std::size_t i = 0; i < 8; ++i) {
    REQUIRE(it.sh(id_of(i), "echo old > old; setsid sleep 1000 > /dev/null 2>&1 &").exit_code == 0);
    answered.insert(id_of(i));
  }
  // In the middle of everything: commands that run, some that start, a file on its way.
  std::vector<std::unique_ptr<exec_stream>> streams;
  for (std::size_t i = 0; i < 8; ++i) {
    streams.push_back(std::make_unique<exec_stream>(
      it.port(), id_of(i), exec_body({"bash", "-c", "echo up; exec yes"})));
    REQUIRE(streams.back()->next());
  }
  http_connection upload{it.port()};
  upload.send("PUT /v1/sandbox/boxa/file/workspace/f HTTP/1.1\r\nHost: "
              "localhost\r\nContent-Length: 1000000\r\n\r\n" +
              std::string(100'000, 'x'));
  std::vector<std::unique_ptr<http_connection>> starting;
  for (std::size_t i = 8; i < 16; ++i) {
    starting.push_back(std::make_unique<http_connection>(it.port()));
    starting.back()->send(
      http_request("POST", "/v1/sandbox/" + id_of(i) + "/exec", exec_body({"echo", "x"})));
  }
  it.crash_both();
  for (auto& each : streams) {
    const auto got = each->rest();
    CHECK_FALSE(got.complete);
    CHECK_FALSE(got.exit_code);
  }
  for (std::size_t i = 8; i < 16; ++i)
    if (starting[i - 8]->receive().status == 200)
      answered.insert(id_of(i));
  const auto before = recorded(it);
  CHECK(std::includes(before.begin(), before.end(), answered.begin(), answered.end()));

  it.start();
  CHECK(it.sandbox_groups().empty());
  CHECK(it.processes().size() == node::own_processes);
  CHECK(it.sh("boxa", "ls -A; echo fine").out == "fine\n");
  CHECK(it.remove("boxb") == 204);
  const int status = it.stop(SIGINT);
  CHECK(status == 0);
  answered.erase("boxb");
  const auto after = recorded(it);
  CHECK(std::includes(after.begin(), after.end(), answered.begin(), answered.end()));
  CHECK(after.count("boxb") == 0);
}

TEST_CASE("without its spawner a server says so, fails cleanly, and ends with an error",
          "[crash]") {
  node it;
  std::vector<std::unique_ptr<exec_stream>> streams;
  for (const std::string script :
       {"echo up; sleep 1000", "echo up; exec yes", "echo up; trap '' TERM HUP INT; sleep 1000"}) {
    streams.push_back(
      std::make_unique<exec_stream>(it.port(), "a", exec_body({"bash", "-c", script})));
    REQUIRE(streams.back()->next());
  }
  CHECK(it.ask("GET", "/health").status == 200);
  it.crash_spawner();
  for (auto& each : streams) {
    const auto got = each->rest();
    CHECK((!got.exit_code || *got.exit_code != 0));
    if (got.complete)
      CHECK((got.exit_code || !got.error.empty()));
  }
  // What is answered until nothing answers any more.
  std::vector<http_answer> health;
  std::vector<exec_outcome> commands;
  CHECK(eventually([&] {
    try {
      health.push_back(it.ask("GET", "/health"));
      for (const std::string id : {"a", "b"})
        commands.push_back(it.exec(id, {"true"}));
      return false;
    } catch (const std::exception&) {
      return true;
    }
  }));
  const int status = it.stop(0); // By itself.
  bool is_told = false;
  for (const auto& each : health) {
    CHECK(each.status == (is_told || each.status != 200 ? 503 : 200)); // It does not get well.
    is_told = is_told || each.status != 200;
    CHECK((!is_told || each.body.starts_with(R"({"ok":false,"errors":[")")));
  }
  for (const auto& each : commands) {
    CAPTURE(each.status, each.refusal, each.error, each.complete);
    CHECK_FALSE(each.exit_code);
    const bool is_cut = each.status == 200 && !each.complete;
    const bool says_why = each.status == 200 && !each.error.empty();
    CHECK((is_cut || says_why || each.status == 502 || each.status == 503));
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
  CHECK(it.log().find("node.spawner_gone") != std::string::npos);
  CHECK(it.log().find("insula: the spawner has ended") != std::string::npos);
  it.start();
  CHECK(it.sandbox_groups().empty());
  CHECK(it.ask("GET", "/health").status == 200);
  CHECK(it.sh("a", "ls -A; echo fine").out == "fine\n");
}

TEST_CASE(
  "killed at any step of a create or a delete, nothing that was answered is lost and nothing "
  "is left",
  "[crash][failpoint]") {
  struct moment {
    std::string step;
    bool deletes;
    bool recorded; ///< Afterwards.
  };
  const auto when = GENERATE(
    as<moment>{}, moment{"object.write", false, false}, moment{"sandbox.made", false, false},
    moment{"object.durable", false, true}, moment{"sandbox.gone", true, true},
    moment{"object.destroy#1", true, true}, moment{"object.destroy#2", true, true},
    moment{"object.destroyed#1", true, true}, moment{"object.destroyed#2", true, false});
  CAPTURE(when.step);
  std::optional<planned_crash> crash;
  crash.emplace(when.step);
  node it;
  if (when.deletes)
    REQUIRE(status_of(it, "GET", "/v1/sandbox/a/running") == 200);
  CHECK_FALSE(status_of(it, when.deletes ? "DELETE" : "GET",
                        when.deletes ? "/v1/sandbox/a" : "/v1/sandbox/a/running"));
  crash.reset();
  it.crash_server(); // It is dead already.
  const auto kept = recorded(it);
  if (when.step != "sandbox.made") // There the record is written beside.
    CHECK(kept.contains("a") == when.recorded);
  it.start();
  // One that was never spoken of is ended; one that is being deleted waits for that.
  if (!kept.contains("a"))
    CHECK(eventually([&] { return it.sandbox_groups().empty(); }));
  if (when.deletes) {
    CHECK(it.remove("a") == 204);
    CHECK(ask_store(it, "SELECT count(*) FROM entries WHERE owner = CAST('a' AS BLOB)") ==
          std::set<std::string>{"0"});
  }
  CHECK(it.sh("a", "ls -A; echo fine").out == "fine\n");
}

TEST_CASE("killed at any step of a command, nothing that was answered is lost and nothing is left",
          "[crash][failpoint]") {
  const auto* step = GENERATE("exec.start", "exec.sent", "exec.started", "exec.ended", "exec.over");
  const bool in_session = GENERATE(false, true);
  CAPTURE(step, in_session);
  const std::string fields = in_session ? "Session-Id: s\r\n" : "";
  std::optional<planned_crash> crash;
  crash.emplace(step + std::string{"#2"}); // Of the second command.
  node it;
  const auto run = [&](const std::string& script) {
    return exec_stream{it.port(), "a", exec_body({"eval", script}), fields}.rest();
  };
  REQUIRE(run("x=1; echo $$ > shell; echo one > file").exit_code == 0);
  try {
    run("echo two >> file; echo out");
  } catch (const std::exception&) {
    // Cut before there was a stream.
  }
  crash.reset();
  it.crash_server(); // It is dead already.
  it.start();
  if (in_session)
    CHECK(run("echo $x").out == "1\n");
  const auto file = run("cat file").out;
  CHECK((file == "one\n" || file == "one\ntwo\n"));
  if (step == std::string{"exec.ended"} || step == std::string{"exec.over"})
    CHECK(file == "one\ntwo\n");
  // Of what has ended nothing is kept: the way in, and that of a session.
  CHECK(it.remove("a") == 204);
  CHECK(eventually(
    [&] { return it.sandbox_groups().empty() && it.processes().size() == node::own_processes; }));
}

TEST_CASE("killed at any step of a pause or a resume, a sandbox is paused or goes on, and is whole",
          "[crash][failpoint][pause]") {
  struct moment {
    std::string step;
    bool resumes;
    bool paused; ///< Afterwards.
  };
  // The first write is that of the start.
  const auto when = GENERATE(
    as<moment>{}, moment{"object.write#2", false, false}, moment{"object.durable#2", false, true},
    moment{"object.write#3", true, true}, moment{"object.durable#3", true, false});
  CAPTURE(when.step);
  std::optional<planned_crash> crash;
  crash.emplace(when.step);
  node it;
  REQUIRE(it.sh("a", "sleep 1000 > /dev/null 2>&1 & echo $! > sleeper").exit_code == 0);
  if (when.resumes)
    REQUIRE(status_of(it, "POST", "/v1/sandboxes/a/pause") == 202);
  CHECK_FALSE(
    status_of(it, "POST", when.resumes ? "/v1/sandboxes/a/resume" : "/v1/sandboxes/a/pause"));
  crash.reset();
  it.crash_server(); // It is dead already.
  it.start();
  CHECK((it.ask("GET", "/v1/sandboxes/a").body.find("Paused") != std::string::npos) == when.paused);
  CHECK(status_of(it, "POST", "/v1/sandboxes/a/resume") == (when.paused ? 202 : 409));
  CHECK(it.sh("a", "kill -0 $(cat sleeper) && echo fine").out == "fine\n");
}

TEST_CASE("killed while a warm sandbox becomes somebody's, nothing is left that is nobody's",
          "[crash][failpoint][pool]") {
  const auto* step = GENERATE("sandbox.claim", "object.write", "sandbox.made", "object.durable");
  CAPTURE(step);
  std::optional<planned_crash> crash;
  crash.emplace(step);
  node it{"pool: {target: 2}"};
  REQUIRE(eventually(
    [&] { return it.ask("GET", "/v1/pool/stats").body.find("\"warm\":2") != std::string::npos; }));
  CHECK_FALSE(status_of(it, "GET", "/v1/sandbox/a/running"));
  crash.reset();
  it.crash_server();
  const auto kept = recorded(it);
  if (step == std::string{"object.durable"})
    CHECK(kept.contains("a"));
  it.configure("");
  it.start(); // Without a pool: what was warm is nobody's.
  CHECK(it.sh("a", "ls -A; hostname").out == "a\n");
  CHECK(it.remove("a") == 204);
  CHECK(eventually(
    [&] { return it.sandbox_groups().empty() && it.processes().size() == node::own_processes; }));
}

TEST_CASE("an alarm that came due while no server was there is attended to by the next one",
          "[crash][alarms]") {
  node it;
  REQUIRE(status_of(it, "GET", "/v1/sandbox/a/running") == 200);
  const int ended = it.stop(SIGINT);
  REQUIRE(ended == 0);
  // No part of this version sets one: it is logged and removed, by the sandbox's own actor.
  ask_store(it, "INSERT INTO entries VALUES(CAST('a' AS BLOB), CAST('@alarm/' AS BLOB), "
                "CAST('1 1 1 another-boot 1.1' AS BLOB))");
  it.start();
  CHECK(eventually([&] {
    return ask_store(it, "SELECT count(*) FROM entries WHERE key = CAST('@alarm/' AS BLOB)") ==
           std::set<std::string>{"0"};
  }));
  CHECK(it.log().find("sandbox.unknown_alarm") != std::string::npos);
  CHECK(it.sandbox_groups().empty()); // Nothing was started for it.
  CHECK(it.sh("a", "echo fine").out == "fine\n");
}

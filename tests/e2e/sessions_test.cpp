#include "base/limits.hpp"
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>

using namespace insula::test;

namespace {

const std::string commands = "/v1/sandbox/a/exec";
const std::string sessions = "/v1/sandbox/a/session";

std::string in(const std::string& session) {
  return "Session-Id: " + session + "\r\n";
}

/// One word of a line that bash reads as it stands: the session's own shell runs it.
exec_stream open(const node& it, const std::string& session, const std::string& script,
                 std::string_view more = {}) {
  return exec_stream{it.port(), "a", exec_body({"eval", script}, more), in(session)};
}

exec_outcome run(const node& it, const std::string& session, const std::string& script,
                 std::string_view more = {}) {
  return open(it, session, script, more).rest();
}

http_answer create(const node& it, const std::string& body) {
  return it.ask("POST", sessions, body);
}

http_answer remove(const node& it, const std::string& id) {
  return it.ask("DELETE", sessions + "/" + id);
}

/// The stream's output until `text` is in it.
void wait_for(exec_stream& stream, const std::string& text) {
  std::string out;
  while (out.find(text) == std::string::npos) {
    const auto next = stream.next();
    if (!next || next->name == "exit" || next->name == "error")
      throw std::runtime_error("it ended without " + text);
    out += next->data;
  }
}

} // namespace

TEST_CASE("what a session's command changes is there for the next one", "[sessions]") {
  const node it;
  const auto exec = [&](const std::vector<std::string>& argv) {
    return exec_stream{it.port(), "a", exec_body(argv), in("s")}.rest();
  };
  CHECK(exec({"cd", "/tmp"}).exit_code == 0);
  CHECK(exec({"export", "A=1"}).exit_code == 0);
  CHECK(exec({"B=2"}).exit_code == 0);
  CHECK(exec({"pwd"}).out == "/tmp\n");
  CHECK(run(it, "s", "echo $A $B; env | grep -c ^B=").out == "1 2\n0\n");
  run(it, "s", "f() { echo f $1; }; alias g='echo g'; set -f; umask 077");
  CHECK(run(it, "s", "f 7; g; echo *; umask").out == "f 7\ng\n*\n0077\n");
  CHECK(exec({"sh", "-c", "cd /usr"}).exit_code == 0);
  CHECK(exec({"pwd"}).out == "/tmp\n");
  CHECK(exec({"if"}).exit_code == 2);
  CHECK(exec({"nothing-of-the-kind"}).exit_code == 127);
}

TEST_CASE("sessions have directories and variables of their own, and share all else",
          "[sessions]") {
  const node it;
  CHECK(create(it, R"({"id":"build","cwd":"/usr","env":{"MODE":"build"}})").body ==
        R"({"id":"build"})");
  CHECK(create(it, R"({"id":"test","env":{"MODE":"test"}})").status == 200);
  CHECK(create(it, R"({"id":"lost","cwd":"/not/there"})").status == 200);
  CHECK(run(it, "build", "pwd; echo $MODE").out == "/usr\nbuild\n");
  CHECK(run(it, "test", "pwd; echo $MODE").out == "/workspace\ntest\n");
  CHECK(run(it, "lost", "pwd").out == "/home/sandbox\n");
  CHECK(run(it, "new", "pwd; echo \"[$MODE]\"").out == "/workspace\n[]\n");
  CHECK(it.sh("a", "pwd; echo \"[$MODE]\"").out == "/workspace\n[]\n");
  CHECK(run(it, "build", "echo shared > /workspace/file; sleep 1000 & echo $!").exit_code == 0);
  CHECK(run(it, "test", "cat file; pgrep -c -x sleep").out == "shared\n1\n");
  CHECK(it.ask("GET", "/v1/sandbox/a/file/workspace/file", "", in("test")).body == "shared\n");
}

TEST_CASE("commands of one session run in order, and those of two at the same time", "[sessions]") {
  const node it;
  REQUIRE(run(it, "one", "mkfifo there back").exit_code == 0);
  // Each waits for the other: neither can be first.
  const auto both = at_once(2, [&](std::size_t i) {
    return run(it, i == 0 ? "one" : "two",
               i == 0 ? "echo x > there; cat back" : "cat there; echo y > back");
  });
  CHECK(both[0].out == "y\n");
  CHECK(both[1].out == "x\n");
  // The first one holds up the second, which can only then see what it has done.
  auto first = open(it, "one", "echo in; read go < there; n=1");
  wait_for(first, "in\n");
  auto second = open(it, "one", "echo second $n; n=2");
  CHECK(run(it, "two", "echo go > there").exit_code == 0);
  CHECK(first.rest().exit_code == 0);
  CHECK(second.rest().out == "second 1\n");
  const auto all = at_once(20, [&](std::size_t) { return run(it, "one", "echo $((++n))"); });
  std::vector<int> numbers;
  for (const auto& each : all)
    numbers.push_back(std::stoi(each.out));
  std::sort(numbers.begin(), numbers.end());
  for (int i = 0; i < 20; ++i)
    CHECK(numbers[static_cast<std::size_t>(i)] == 3 + i);
}

TEST_CASE("a session's output is exact, whatever it is", "[sessions]") {
  const node it;
  const auto got = run(it, "s", "printf '\\0\\1\\377\\n'; printf 'no end' >&2");
  CHECK(got.out == std::string("\0\1\377\n", 4));
  CHECK(got.err == "no end");
  const auto large = run(it, "s", "head -c 20000000 /dev/zero | tr '\\0' y; echo done >&2");
  CHECK(large.out == std::string(20'000'000, 'y'));
  CHECK(large.err == "done\n");
  CHECK(large.exit_code == 0);
  const std::string word(1 << 20, 'w');
  CHECK(run(it, "s", "printf %s " + word + " | wc -c").out == "1048576\n");
  CHECK(run(it, "s", "cat").out.empty());
}

TEST_CASE("what a command leaves running says nothing in the next one's output", "[sessions]") {
  const node it;
  const auto first = run(it, "s",
                         "mkfifo go gone; (read x < go; echo late; echo late >&2; echo $? > gone) "
                         "& echo now");
  CHECK(first.out == "now\n");
  CHECK(first.exit_code == 0);
  const auto second = run(it, "s", "echo x > go; cat gone; echo mine");
  CHECK(second.out == "0\nmine\n");
  CHECK(second.err.empty());
}

TEST_CASE("a directory for one command of a session is for that one", "[sessions]") {
  const node it;
  CHECK(run(it, "s", "mkdir -p d e; cd e").exit_code == 0);
  CHECK(run(it, "s", "pwd", R"(,"cwd":"d")").out == "/workspace/d\n");
  CHECK(run(it, "s", "pwd").out == "/workspace/e\n");
  const auto missing = run(it, "s", "pwd", R"(,"cwd":"nowhere")");
  CHECK(missing.exit_code == 1);
  CHECK(missing.err == "Failed to change directory to '/workspace/nowhere'\n");
  CHECK(missing.out.empty());
  CHECK(run(it, "s", "cd /usr", R"(,"cwd":"d")").exit_code == 0);
  CHECK(run(it, "s", "pwd").out == "/workspace/e\n");
}

TEST_CASE("a session whose time is up goes on with what it had", "[sessions][timeout]") {
  const node it;
  CHECK(create(it, R"({"id":"s","commandTimeoutMs":3000})").status == 200);
  CHECK(run(it, "s", "kept=1; cd /tmp", R"(,"timeout_ms":30000)").exit_code == 0);
  const auto by_session = run(it, "s", "echo so far; sleep 1000");
  CHECK(by_session.exit_code == 124);
  CHECK(by_session.out == "so far\n");
  CHECK(by_session.err == "Command timed out after 3000ms\n");
  const auto busy = run(it, "s", "while :; do :; done", R"(,"timeout_ms":200)");
  CHECK(busy.exit_code == 124);
  CHECK(busy.err == "Command timed out after 200ms\n");
  CHECK(run(it, "s", "echo $kept; pwd", R"(,"timeout_ms":30000)").out == "1\n/tmp\n");
  CHECK(run(it, "s", "true", R"(,"timeout_ms":0)").status == 200);
  // One that cannot be interrupted costs the session its shell.
  const auto deaf = run(it, "s", "trap '' INT TERM; while :; do :; done", R"(,"timeout_ms":3000)");
  CHECK(deaf.exit_code == 124);
  CHECK(run(it, "s", "echo \"[$kept]\"; pwd").out == "[]\n/workspace\n");
}

TEST_CASE("time in a session's queue does not count", "[sessions][timeout]") {
  const node it;
  auto first = open(it, "s", "echo in; sleep 6");
  wait_for(first, "in\n");
  auto second = open(it, "s", "echo second", R"(,"timeout_ms":5000)");
  CHECK(first.rest().exit_code == 0);
  CHECK(second.rest().out == "second\n");
}

TEST_CASE("a session that ends says with what, and begins anew", "[sessions]") {
  const node it;
  for (const auto& [script, code] : {std::pair{"exit 7", 7},
                                     {"set -e; false", 1},
                                     {"kill -9 $$", 137},
                                     {"exec sleep 0", 0},
                                     {"exec sh -c 'exit 5'", 5},
                                     {"trap 'exit 6' EXIT; exit", 6}}) {
    CAPTURE(script);
    CHECK(run(it, "s", "old=1; cd /tmp").exit_code == 0);
    CHECK(run(it, "s", script).exit_code == code);
    CHECK(run(it, "s", "echo \"[$old]\"; pwd").out == "[]\n/workspace\n");
  }
  // What has been waiting gets the fresh one.
  REQUIRE(run(it, "s", "mkfifo go").exit_code == 0);
  auto leaving = open(it, "s", "old=1; echo in; read x < go; exit 3");
  wait_for(leaving, "in\n");
  auto second = open(it, "s", "echo \"[$old]\"; now=2");
  auto third = open(it, "s", "echo $now");
  CHECK(it.sh("a", "echo x > go").exit_code == 0);
  CHECK(leaving.rest().exit_code == 3);
  const auto two = second.rest(), three = third.rest();
  CHECK((two.out == "[]\n" || three.out == "[]\n"));
  CHECK(two.exit_code == 0);
  CHECK(three.exit_code == 0);
}

TEST_CASE("a session cannot be led astray", "[sessions]") {
  const node it;
  for (const std::string trick :
       {"exec 1>&-", "exec >/dev/null 2>&1", "exec 199>&-", "trap 'echo no' DEBUG ERR EXIT",
        "alias builtin=no printf=no .=no", "builtin() { :; }", "readonly PATH IFS PS1", "set -u",
        "IFS=0/"}) {
    CAPTURE(trick);
    CHECK(run(it, "s", trick).exit_code == 0);
    const auto after = run(it, "s", "echo out; echo err >&2");
    CHECK(after.out.find("out\n") != std::string::npos);
    CHECK(after.err == "err\n");
    CHECK(remove(it, "s").status == 204);
  }
  for (const std::string text : {"echo 'x", "cat <<E\nx", "if", "(", "echo $("}) {
    CAPTURE(text);
    CHECK(run(it, "s", text).exit_code.has_value());
    CHECK(run(it, "s", "echo whole").out == "whole\n");
  }
}

TEST_CASE("a deleted session takes all with it that it has started", "[sessions]") {
  const node it;
  CHECK(run(it, "s", "x=1; sleep 1111 & setsid sleep 1112 >/dev/null 2>&1 &").exit_code == 0);
  CHECK(run(it, "other", "sleep 1113 &").exit_code == 0);
  auto running = open(it, "s", "echo in; sleep 1114");
  wait_for(running, "in\n");
  auto queued = open(it, "s", "echo never");
  CHECK(remove(it, "s").status == 204);
  const std::string gone = R"({"error":"Session 's' was deleted","code":"exec_error"})";
  CHECK(running.rest().error == gone);
  const auto waited = queued.rest();
  // It had come before the deletion, or it is the first one of a new session.
  CHECK((waited.error == gone || waited.out == "never\n"));
  CHECK(it.sh("a", "pgrep -f '^sleep 111[124]'").exit_code == 1);
  CHECK(it.sh("a", "pgrep -f '^sleep 1113'").exit_code == 0);
  CHECK(run(it, "s", "echo \"[$x]\"").out == "[]\n");
  CHECK(remove(it, "s").status == 204);
  CHECK(remove(it, "s").body ==
        R"({"error":"session delete failed: Session 's' not found","code":"session_error"})");
  CHECK(remove(it, "default").status == 502);
  CHECK(
    create(it, R"({"id":"other"})").body ==
    R"({"error":"session create failed: Session 'other' already exists","code":"session_error"})");
}

TEST_CASE("a sandbox that is deleted under a session's command says so", "[sessions]") {
  const node it;
  auto running = open(it, "s", "echo in; sleep 1000");
  wait_for(running, "in\n");
  CHECK(it.remove("a") == 204);
  const auto got = running.rest();
  CHECK_FALSE(got.exit_code);
  CHECK(got.error.find("exec_error") != std::string::npos);
  CHECK(run(it, "s", "echo new").out == "new\n");
}

TEST_CASE("commands without a session can run in the default one", "[sessions]") {
  const node it{"bridge: {default_session: true}\n"};
  CHECK(it.exec("a", {"cd", "/tmp"}).exit_code == 0);
  CHECK(it.exec("a", {"pwd"}).out == "/tmp\n");
  CHECK(run(it, "default", "pwd").out == "/tmp\n");
  CHECK(run(it, "s", "pwd").out == "/workspace\n");
}

TEST_CASE("a sandbox has so many sessions and no more", "[sessions]") {
  const node it;
  // Their shells can wait for a command: a file operation is enough to make one.
  const auto touch = [&](std::size_t i) {
    return it.ask("GET", "/v1/sandbox/a/file/workspace/none", "", in("s" + std::to_string(i)));
  };
  for (std::size_t i = 0; i < insula::limits::sessions_per_sandbox; ++i)
    REQUIRE(touch(i).status == 404);
  CHECK(touch(999).status == 502);
  const auto refused = create(it, R"({"id":"more"})");
  CHECK(refused.status == 502);
  CHECK(refused.body ==
        R"({"error":"session create failed: the sandbox has 256 sessions, which is )"
        R"(as many as it may; delete one of them","code":"session_error"})");
  CHECK(run(it, "more", "true").error.find("256 sessions") != std::string::npos);
  CHECK(run(it, "s7", "echo fine").out == "fine\n");
  CHECK(remove(it, "s8").status == 204);
  CHECK(run(it, "more", "echo room").out == "room\n");
}

TEST_CASE("sessions that are made, used and deleted leave nothing", "[sessions]") {
  const node it;
  const auto round = [&](std::size_t i) {
    const auto id = "s" + std::to_string(i);
    CHECK(create(it, "{\"id\":\"" + id + "\"}").status == 200);
    CHECK(run(it, id, "sleep 1000 & echo x").out == "x\n");
    CHECK(remove(it, id).status == 204);
  };
  round(0);
  const auto processes = it.processes().size();
  const auto files = open_files(it.pid());
  const auto before = open_file_names(it.pid());
  for (std::size_t i = 1; i <= 50; ++i)
    round(i);
  CHECK(eventually([&] { return it.processes().size() <= processes; }, 30s));
  const bool closed = eventually([&] { return open_files(it.pid()) <= files; }, 30s);
  INFO("before:\n" << before << "after:\n" << open_file_names(it.pid()));
  CHECK(closed);
}

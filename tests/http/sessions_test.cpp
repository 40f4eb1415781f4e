#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <set>

using namespace insula;
using namespace insula::test;

namespace {

const std::string sessions = "/v1/sandbox/abc/session";
const std::string exec_path = "/v1/sandbox/abc/exec";

void check_error(const answer& got, int status, const std::string& message,
                 const std::string& code) {
  CHECK(got.status == status);
  CHECK(got.body == "{\"error\":\"" + message + "\",\"code\":\"" + code + "\"}");
}

} // namespace

TEST_CASE("a session is made with what its request says", "[http][sessions]") {
  house h;
  const auto got =
    ask(h.port(), "POST", sessions,
        R"({"id":"build.1","cwd":"/build","env":{"A":"1","B":2,"C":"x y","D":{"E":"no"}},)"
        R"("commandTimeoutMs":1500.5,"more":{"id":"no","env":{"F":"no"}}})");
  CHECK(got.status == 200);
  CHECK(got.body == R"({"id":"build.1"})");
  CHECK(h.heard().has("create_session build.1 in /build A=1 C=x y for 1501"));
  CHECK(
    ask(h.port(), "POST", sessions, R"({"id":"r","cwd":"src","env":["A"],"commandTimeoutMs":"1"})")
      .status == 200);
  CHECK(h.heard().has("create_session r in /workspace/src"));
  CHECK(
    ask(h.port(), "POST", sessions, R"({"id":"a","id":"b","env":{"A":"1","A":2},"cwd":3})").body ==
    R"({"id":"b"})");
  CHECK(h.heard().has("create_session b in "));
}

TEST_CASE("a session without an id gets one, never the same twice", "[http][sessions]") {
  house h;
  std::set<std::string> ids;
  for (const std::string body : {"", "{}", "null", "[]", "7", "\"id\"", "{", "not json",
                                 "{\"id\":7}", "[{\"id\":\"no\"}]", "\xef\xbb\xbf{}"}) {
    const auto got = ask(h.port(), "POST", sessions, body);
    CHECK(got.status == 200);
    CHECK(got.body.substr(0, 15) == R"({"id":"session-)");
    ids.insert(got.body);
  }
  CHECK(ids.size() == 11);
}

TEST_CASE("a request for a session is refused for what is wrong with it", "[http][sessions]") {
  house h;
  const std::string too_long(129, 'a');
  for (const auto& id : {std::string{}, std::string{"a b"}, std::string{"a/b"}, std::string{".."},
                         std::string{"a..b"}, std::string{"\\u00e4"}, std::string{"a\\u0000"},
                         std::string{"a\\n"}, too_long})
    check_error(ask(h.port(), "POST", sessions, "{\"id\":\"" + id + "\"}"), 400,
                "Invalid session ID format", "invalid_request");
  check_error(
    ask(h.port(), "POST", sessions, R"({"id":"__DISABLE_SESSION__"})"), 502,
    "session create failed: Session ID '__DISABLE_SESSION__' is reserved for internal use",
    "session_error");
  for (const std::string env : {"{\"\":\"1\"}", "{\"A=B\":\"1\"}", "{\"A\":\"\\u0000\"}"})
    check_error(ask(h.port(), "POST", sessions, "{\"env\":" + env + "}"), 400,
                "env must have names without = and no NUL", "invalid_request");
  check_error(ask(h.port(), "POST", sessions, R"({"cwd":"/a\u0000"})"), 400,
              "cwd must not contain NUL", "invalid_request");
  CHECK(ask(h.port(), "POST", sessions, std::string((1 << 20) + 1, ' ')).status == 413);
  CHECK(ask(h.port(), "DELETE", sessions).status == 404);
  CHECK(ask(h.port(), "DELETE", sessions + "/").status == 404);
  CHECK(ask(h.port(), "DELETE", sessions + "/a/b").status == 404);
  check_error(ask(h.port(), "DELETE", sessions + "/a%20b"), 400, "Invalid session ID format",
              "invalid_request");
  check_error(ask(h.port(), "DELETE", sessions + "/default"), 502,
              "Cannot delete default session 'default'. Use sandbox.destroy() to terminate the "
              "sandbox.",
              "session_error");
  CHECK(h.heard().all().empty());
}

TEST_CASE("what a sandbox says of a session is told as the bridge tells it", "[http][sessions]") {
  house h;
  CHECK(ask(h.port(), "DELETE", sessions + "/s1").status == 204);
  CHECK(h.heard().has("delete_session s1"));
  h.plays().session_error = error{errc::already_exists, "Session 's1' already exists"};
  check_error(ask(h.port(), "POST", sessions, R"({"id":"s1"})"), 502,
              "session create failed: Session 's1' already exists", "session_error");
  h.plays().session_error = error{errc::not_found, "Session 's1' not found"};
  check_error(ask(h.port(), "DELETE", sessions + "/s1"), 502,
              "session delete failed: Session 's1' not found", "session_error");
  h.plays().session_error = error{errc::launch_failed, "the shell was not ready in time"};
  check_error(ask(h.port(), "POST", sessions), 502,
              "session create failed: the shell was not ready in time", "session_error");
  h.plays().session_error = error{errc::limit_reached, "there are too many"};
  check_error(ask(h.port(), "POST", sessions), 502, "session create failed: there are too many",
              "session_error");
}

TEST_CASE("a command runs in the session that its request names", "[http][sessions][exec]") {
  house h;
  ask(h.port(), "POST", exec_path, R"({"argv":["pwd"]})", "Session-Id: s1\r\n");
  CHECK(h.last_exec().session == "s1");
  CHECK(h.last_exec().cwd.empty());
  ask(h.port(), "POST", exec_path, R"({"argv":["pwd"],"cwd":"src"})", "Session-Id: s1\r\n");
  CHECK(h.last_exec().cwd == "/workspace/src");
  ask(h.port(), "POST", exec_path, R"({"argv":["pwd"],"cwd":""})", "Session-Id: s1\r\n");
  CHECK(h.last_exec().cwd == "/workspace");
  ask(h.port(), "POST", exec_path, R"({"argv":["pwd"]})");
  CHECK(h.last_exec().session.empty());
  CHECK(h.last_exec().cwd == "/workspace");
  h.plays().exec_error = error{errc::session_ended, "Session 's1' was deleted"};
  CHECK(ask(h.port(), "POST", exec_path, R"({"argv":["pwd"]})", "Session-Id: s1\r\n")
          .body.find(R"(data: {"error":"Session 's1' was deleted","code":"exec_error"})") !=
        std::string::npos);
}

TEST_CASE("without a session's id commands can be made to run in the default one",
          "[http][sessions][exec]") {
  http::server_options options;
  options.default_session = true;
  house h{options};
  ask(h.port(), "POST", exec_path, R"({"argv":["pwd"]})");
  CHECK(h.last_exec().session == "default");
  CHECK(h.last_exec().cwd.empty());
  ask(h.port(), "POST", exec_path, R"({"argv":["pwd"]})", "Session-Id: s1\r\n");
  CHECK(h.last_exec().session == "s1");
}

TEST_CASE("the time limit of a session is named when it is over", "[http][sessions][exec]") {
  house h;
  process_end end;
  end.timed_out = true;
  end.timeout_ms = 1500;
  h.plays().end = end;
  const auto got = ask(h.port(), "POST", exec_path, R"({"argv":["pwd"]})", "Session-Id: s1\r\n");
  // "Command timed out after 1500ms\n"
  CHECK(got.body.find("Q29tbWFuZCB0aW1lZCBvdXQgYWZ0ZXIgMTUwMG1zCg==") != std::string::npos);
}

TEST_CASE("a file operation names its session", "[http][sessions][files]") {
  house h;
  h.plays().file_error = error{errc::io_failed, "no"};
  ask(h.port(), "GET", "/v1/sandbox/abc/file/workspace/a", "", "Session-Id: s1\r\n");
  CHECK(h.heard().has("read_file /workspace/a in s1"));
  ask(h.port(), "PUT", "/v1/sandbox/abc/file/workspace/a", "x", "Session-Id: s2\r\n");
  CHECK(h.heard().has("write_file /workspace/a in s2"));
}

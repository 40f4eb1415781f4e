// Routes of the Vercel API over a sandbox that the test plays.
#include "base/limits.hpp"
#include "http/vercel/ids.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <chrono>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

const std::string session = "sbx_abcdefghijklmnopqrstuvwxyz1";
const std::string commands = "/v2/sandboxes/sessions/" + session + "/cmd";
const std::string key(32, 'a');

command_list::item listed(const std::string& id, std::int64_t started,
                          const std::string& of = session) {
  command_list::item item;
  item.known = item.output = true;
  item.id = id;
  item.text = R"({"id":"cmd_)" + id + R"(","name":"sh","args":["-c"],"cwd":"/","sessionId":")" +
              of + R"(","exitCode":null,"startedAt":)" + std::to_string(started) + "}";
  item.started_ms = started;
  return item;
}

} // namespace

TEST_CASE("Vercel: words of other routes are no names", "[http][vercel]") {
  house h;
  for (const auto* word : {"snapshots", "drives", "sessions"})
    for (const auto* method : {"GET", "PATCH", "DELETE"})
      for (const auto* query :
           {"", "?project=prj", "?projectId=prj", "?projectId=prj&resume=true"}) {
        if (std::string{method} == "GET")
          continue; // There are such routes.
        CAPTURE(word, method, query);
        const auto got =
          ask(h.port(), method, std::string{"/api/v2/sandboxes/"} + word + query, "{}");
        CHECK(got.status == 404);
        CHECK(got.body.find(R"({"error":{"code":"not_found","message":")") == 0);
      }
  for (const auto* path : {"/v2/sandboxes/snapshots/snap_1", "/v2/sandboxes/snapshots/tree"})
    for (const auto* method : {"GET", "POST", "DELETE"}) {
      CAPTURE(path, method);
      const auto got = ask(h.port(), method, path, "{}");
      CHECK(got.status == 404);
      CHECK(got.body.find(R"({"error":{"code":"not_found","message":")") == 0);
    }
  CHECK(ask(h.port(), "GET", "/v2/sandboxes/box").status == 400); // A name, and no project.
  CHECK(ask(h.port(), "POST", "/v2/sandboxes/box/fork", "{}").status == 400);
  CHECK(ask(h.port(), "GET", "/v2/sandboxes/snapshots").status == 400);
  CHECK(
    ask(h.port(), "POST", "/v3/sandboxes", R"({"projectId":"prj","name":"snapshots"})").status ==
    400);
  CHECK(h.heard().all().empty());
}

TEST_CASE("Vercel: a body that is too long is refused in the words of this API", "[http][vercel]") {
  house h;
  const std::string large(limits::routed_body_bytes + 1, ' ');
  for (const auto* path : {"/v3/sandboxes", "/v2/sandboxes", "/api/v3/sandboxes"}) {
    const auto got = ask(h.port(), "POST", path, large);
    CHECK(got.status == 413);
    CHECK(got.body == R"({"error":{"code":"payload_too_large","message":"The body may have )" +
                        std::to_string(limits::routed_body_bytes) + R"( bytes."}})");
  }
  const auto got =
    ask(h.port(), "PATCH", "/v2/sandboxes/box?projectId=prj", std::string((1u << 20) + 1, ' '));
  CHECK(got.status == 413);
  CHECK(got.body.find(R"("code":"payload_too_large")") != std::string::npos);
}

namespace {

const std::string write_path =
  "/v2/sandboxes/sessions/sbx_" + http::vercel::sandbox_of("k", "p", "n") + "1/fs/write";
const std::string as_gzip = "Content-Type: application/gzip\r\n";

bool has_begun(const std::vector<std::string>& heard) {
  return std::any_of(heard.begin(), heard.end(),
                     [](const auto& each) { return each.starts_with("exec"); });
}

} // namespace

TEST_CASE("Vercel: an archive is fed to the sandbox's tar, all of it, while it comes",
          "[http][vercel]") {
  house h;
  h.plays().reads_input = true;
  h.plays().reads_slowly = GENERATE(false, true);
  const std::string body = "\x1f\x8b" + std::string(1u << 20, 'x');
  const auto got = ask(h.port(), "POST", write_path, body, as_gzip + "x-cwd: /tmp/here\r\n");
  CHECK(got.status == 200);
  CHECK(got.body == "{}");
  CHECK(h.heard().has("fed 1048578 bytes"));
  const auto ran = h.last_exec();
  CHECK(ran.input);
  CHECK(ran.only_if_there);
  CHECK(ran.context.run == 1);
  CHECK(ran.argv.at(0) == "tar");
  CHECK(std::count(ran.argv.begin(), ran.argv.end(), "--directory=/tmp/here") == 1);
}

TEST_CASE("Vercel: an archive that is none is refused before anything runs", "[http][vercel]") {
  house h;
  const auto refused = [&](const std::string& fields, const std::string& body) {
    return ask(h.port(), "POST", write_path, body, fields);
  };
  const std::string some = "\x1f\x8b and so on";
  CHECK(refused("", some).status == 415);
  CHECK(refused("Content-Type: application/json\r\n", some).body.find("invalid_content_type") !=
        std::string::npos);
  CHECK(refused(as_gzip + "x-cwd: tmp\r\n", some).status == 400);
  CHECK(refused(as_gzip, "").status == 400);
  CHECK(refused(as_gzip, "\x1f").status == 400);
  CHECK(refused(as_gzip, std::string(1u << 20, 'x')).status == 400);
  CHECK_FALSE(has_begun(h.heard().all()));
}

TEST_CASE("Vercel: a tar that gives up says why, whatever is still coming", "[http][vercel]") {
  house h;
  h.plays().output = {{output_stream::err, "tar: first\ntar: no room\n", 0}};
  h.plays().end = process_end{2};
  const auto got =
    ask(h.port(), "POST", write_path, "\x1f\x8b" + std::string(4u << 20, 'x'), as_gzip);
  CHECK(got.status == 400);
  CHECK(got.body == R"({"error":{"code":"file_error","message":"tar: no room"}})");
}

TEST_CASE("Vercel: a client that stands still with half an archive is told what has become of it",
          "[http][vercel]") {
  http::server_options options;
  options.time.progress = 300ms;
  house h{options};
  h.plays().output = {{output_stream::err, "tar: no room\n", 0}};
  h.plays().end = process_end{2};
  client one{h.port()};
  one.send("POST " + write_path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n" +
           as_gzip + "\r\n\x1f\x8b and");
  const auto got = one.receive();
  CHECK(got.status == 400);
  CHECK(got.body == R"({"error":{"code":"file_error","message":"tar: no room"}})");
  CHECK(one.at_end());
}

TEST_CASE("Vercel: a client that leaves its archive half sent leaves no tar that waits",
          "[http][vercel]") {
  house h;
  h.plays().reads_input = true;
  client one{h.port()};
  one.send("POST " + write_path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n" +
           as_gzip + "\r\n\x1f\x8b and");
  REQUIRE(h.heard().has("read 0 attached"));
  one.close();
  CHECK(h.heard().has("fed 6 bytes"));
}

TEST_CASE("Vercel: the commands of a session are listed as its objects", "[http][vercel]") {
  house h;
  auto ended = listed("two", 5);
  ended.end = process_end{};
  ended.end->exit_code = 3;
  ended.ended_ms = 12;
  auto lost = listed("three", 4);
  lost.end = process_end{};
  lost.end->lost = true;
  h.plays().commands.commands = {listed("one", 6), ended, listed("other", 5, "sbx_of_another"),
                                 lost};
  const auto got = ask(h.port(), "GET", commands);
  CHECK(got.status == 200);
  const auto text = [](const std::string& id, const std::string& end, const std::string& at,
                       const std::string& more = "") {
    return R"({"id":"cmd_)" + id + R"(","name":"sh","args":["-c"],"cwd":"/","sessionId":")" +
           session + R"(","exitCode":)" + end + R"(,"startedAt":)" + at + more + "}";
  };
  CHECK(got.body == R"({"commands":[)" + text("one", "null", "6") + "," +
                      text("two", "3", "5", R"(,"durationMs":7)") + "," +
                      text("three", "null", "4") + "]}");
  CHECK(h.heard().has("find_commands 1"));
  h.plays().commands.commands.clear();
  CHECK(ask(h.port(), "GET", commands).body == R"({"commands":[]})");
  h.plays().commands_error = error{errc::not_found, "there is no such run"};
  CHECK(ask(h.port(), "GET", commands).status == 404);
}

TEST_CASE("Vercel: commands and logs that were another node's, or are not kept, are gone",
          "[http][vercel]") {
  house h;
  const auto gone = [&](const std::string& path) {
    const auto got = ask(h.port(), "GET", path);
    CAPTURE(path, got.body);
    return got.status == 410 && got.body.find(R"({"error":{"code":"gone","message":")") == 0;
  };
  const auto one = commands + "/cmd_" + key;
  h.plays().commands.elsewhere = true;
  CHECK(gone(commands));
  CHECK(gone(one));
  CHECK(gone(one + "/logs"));
  h.plays().commands.elsewhere = false;
  h.plays().command = listed(key, 5);
  h.plays().log_gone = true;
  CHECK(gone(one + "/logs"));
  CHECK(ask(h.port(), "GET", one).status == 200);
  h.plays().command.known = false;
  CHECK(ask(h.port(), "GET", one).status == 404);
  CHECK(ask(h.port(), "GET", one + "/logs").status == 404);
}

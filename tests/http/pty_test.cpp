#include "http/opensandbox/pty_json.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"

#include <csignal>
#include <regex>

using namespace insula;
using namespace insula::test;
using namespace insula::http;

namespace {

const std::string base = "/v1/sandboxes/abc/proxy/44772";
const std::string id = "0123456789abcdef0123456789abcdef";

std::string connected() {
  return R"({"type":"connected","session_id":")" + id + R"(","mode":"pty"})";
}

struct pty_house : house {
  pty_house() { plays().opens_terminals = true; }

  answer call(const std::string& method, const std::string& path, const std::string& body = {}) {
    return ask(port(), method, base + path, body);
  }
  web_socket_client open(const std::string& query = {}) {
    return web_socket_client{port(), base + "/pty/" + id + "/ws" + query};
  }
};

} // namespace

TEST_CASE("a terminal is made, told of and ended", "[http][execd][pty]") {
  pty_house h;
  for (const std::string body : {"", "null", "{}", R"({"CWD":null})"}) {
    const auto made = h.call("POST", "/pty", body);
    CHECK(made.status == 201);
    CHECK(std::regex_match(made.body, std::regex{R"(\{"session_id":"[0-9a-f]{32}"\})"}));
  }
  CHECK(h.call("POST", "/pty", R"({"cwd":"/tmp","command":"top"})").status == 201);
  CHECK(h.heard().has("define_terminal top in /tmp"));
  CHECK(h.heard().all().front() == "reach abc"); // Nothing is started.
  for (const std::string body : {"{", "[]", "7", R"({"cwd":1})", R"({"command":"a\u0000"})"}) {
    CAPTURE(body);
    const auto got = h.call("POST", "/pty", body);
    CHECK(got.status == 400);
    CHECK(got.body.starts_with(R"({"code":"INVALID_REQUEST_BODY")"));
  }
  CHECK(h.call("POST", "/pty", R"({"command":")" + std::string(200'000, 'x') + R"("})").status ==
        400);

  const auto missing = h.call("GET", "/pty/" + id);
  CHECK(missing.status == 404);
  CHECK(missing.body.starts_with(R"({"code":"CONTEXT_NOT_FOUND")"));
  CHECK(h.call("GET", "/pty/..").status == 404);
  h.plays().terminal = {true, true, 77};
  const auto found = h.call("GET", "/pty/" + id);
  CHECK(found.status == 200);
  CHECK(found.body == R"({"session_id":")" + id + R"(","running":true,"output_offset":77})");

  const auto ended = h.call("DELETE", "/pty/" + id);
  CHECK(ended.status == 200);
  CHECK(ended.fields.at("content-length") == "0");
  CHECK(h.heard().has("forget_terminal " + id));
  h.plays().terminal_error = error{errc::not_found, "no"};
  CHECK(h.call("DELETE", "/pty/" + id).status == 404);
  CHECK(h.call("DELETE", "/pty/" + id).body.starts_with(R"({"code":"CONTEXT_NOT_FOUND")"));
}

TEST_CASE("what was printed comes before the word that all is there", "[http][execd][pty]") {
  pty_house h;
  h.plays().output = {{output_stream::out, "one "}, {output_stream::out, "two"}};
  auto client = h.open();
  REQUIRE(client.head().status == 101);
  const auto replay = client.next();
  CHECK(replay.kind == frame_kind::binary);
  CHECK(replay.bytes == std::string{"\x03\0\0\0\0\0\0\0\0", 9} + "one two");
  const auto word = client.next();
  CHECK(word.kind == frame_kind::text);
  CHECK(word.bytes == connected());
  h.print_terminal("\xe2\x82"); // Half a character is passed on as it is.
  CHECK(client.next().bytes == "\x01\xe2\x82");

  auto later = h.open("?takeover=1&since=4");
  CHECK(later.next().bytes == std::string{"\x03\0\0\0\0\0\0\0\4", 9} + "two");
  CHECK(later.next().bytes == connected());
  auto last = h.open("?takeover=1&since=900");
  CHECK(last.next().bytes == connected());
}

TEST_CASE("what a terminal's client says is understood", "[http][execd][pty]") {
  pty_house h;
  auto client = h.open();
  REQUIRE(client.next().bytes == connected());
  client.type(std::string{"\0ls\n", 4});
  CHECK(h.heard().has("typed ls\n"));
  client.type("\1not for the terminal");
  client.type("");
  client.tell(R"({"type":"stdin","data":"pwd\n"})");
  CHECK(h.heard().has("typed pwd\n"));
  client.tell(R"({"type":"resize","cols":100,"rows":30})");
  CHECK(h.heard().has("resize 100x30"));
  for (const auto* odd :
       {R"({"type":"resize","cols":0,"rows":30})", R"({"type":"resize","cols":1.5,"rows":30})",
        R"({"type":"resize","cols":65536,"rows":30})", R"({"type":"resize"})", "no JSON", "[]",
        R"({"type":"stdin","data":1})", R"({"type":"signal","signal":"SIGSTOP"})"})
    client.tell(odd);
  client.tell(R"({"type":"signal","signal":"SIGINT"})");
  CHECK(h.heard().has("signal " + std::to_string(SIGINT)));
  client.tell(R"({"type":"ping"})");
  CHECK(client.next().bytes == R"({"type":"pong"})");
  client.tell(R"({"type":"dance"})");
  CHECK(client.next().bytes ==
        R"({"type":"error","error":"unknown frame type \"dance\"","code":"INVALID_FRAME"})");
  std::vector<std::string> done;
  for (const auto& each : h.heard().all())
    if (each.starts_with("typed ") || each.starts_with("resize ") || each.starts_with("signal "))
      done.push_back(each);
  CHECK(done == std::vector<std::string>{"typed ls\n", "typed pwd\n", "resize 100x30", "signal 2"});
}

TEST_CASE("a terminal's end is told, and the WebSocket closed", "[http][execd][pty]") {
  const auto [end, code] = GENERATE(table<process_end, std::string>({
    {process_end{}, "0"},
    {process_end{.exit_code = 3}, "3"},
    {process_end{.exit_code = 137, .signal = 9}, "-1"},
  }));
  pty_house h;
  auto client = h.open();
  REQUIRE(client.next().bytes == connected());
  h.print_terminal("bye");
  h.end_terminal(end);
  CHECK(client.next().bytes == "\x01"
                               "bye");
  CHECK(client.next().bytes == R"({"type":"exit","exit_code":)" + code + "}");
  const auto close = client.next();
  CHECK(close.kind == frame_kind::close);
  CHECK(close.code == 1000);
  CHECK(close.bytes == "process exited");
}

TEST_CASE("a terminal has one client, until another takes over", "[http][execd][pty]") {
  pty_house h;
  auto first = h.open();
  REQUIRE(first.next().bytes == connected());
  const auto second = h.open();
  CHECK(second.head().status == 409);
  CHECK(second.head().body.starts_with(R"({"code":"ALREADY_CONNECTED","message":")"));
  auto third = h.open("?takeover=1");
  REQUIRE(third.next().bytes == connected());
  const auto close = first.next();
  CHECK(close.kind == frame_kind::close);
  CHECK(close.code == 4001);
  CHECK(close.bytes == "TAKEN_OVER");
  h.print_terminal("x");
  CHECK(third.next().bytes == "\x01x");
}

TEST_CASE("what is no terminal is refused before the upgrade", "[http][execd][pty]") {
  pty_house h;
  const auto pipes = h.open("?pty=0");
  CHECK(pipes.head().status == 400);
  CHECK(pipes.head().body.starts_with(R"({"code":"NOT_SUPPORTED")"));
  CHECK(h.open("?pty=1").head().status == 101);
  h.plays().terminal_error = error{errc::not_found, "no"};
  const auto unknown = h.open();
  CHECK(unknown.head().status == 404);
  CHECK(unknown.head().body.starts_with(R"({"code":"CONTEXT_NOT_FOUND")"));
  h.plays().terminal_error = error{errc::launch_failed, "no such directory"};
  CHECK(h.open().head().status == 500);
  h.plays().terminal_error = error{errc::limit_reached, "there are too many"};
  const auto full = h.open();
  CHECK(full.head().status == 429);
  CHECK(full.head().body == R"({"code":"RUNTIME_ERROR","message":"there are too many"})");
  CHECK(h.call("GET", "/pty/" + id + "/ws").status == 404);
  h.plays().terminal.known = true;
  CHECK(h.call("GET", "/pty/" + id + "/ws").status == 400);
  CHECK(web_socket_client{h.port(), base + "/pty/ABC/ws"}.head().status == 404);
}

TEST_CASE("code without a language is a command, and nothing else is run", "[http][execd][code]") {
  pty_house h;
  const auto run = h.call("POST", "/code", R"({"code":"echo hi","context":null})");
  CHECK(run.status == 200);
  CHECK(run.fields.at("content-type") == "text/event-stream");
  CHECK(run.body.find("execution_complete") != std::string::npos);
  CHECK(h.last_exec().command_line == "echo hi");
  for (const std::string body :
       {R"({"code":"1+1","context":{"language":"python"}})", R"({"code":"x","context":{"id":"c"}})",
        R"({"code":"x","context":{"language":"bash","id":"c"}})"}) {
    const auto got = h.call("POST", "/code", body);
    CHECK(got.status == 500);
    CHECK(got.body.starts_with(R"({"code":"RUNTIME_ERROR","message":"no code interpreter)"));
  }
  for (const std::string body : {"", "{", "[]", "{}", R"({"code":""})", R"({"code":1})",
                                 R"({"code":"x","context":"python"})"})
    CHECK(h.call("POST", "/code", body).status == 400);
  CHECK(h.call("POST", "/code/context", R"({"language":"python"})").status == 500);
  CHECK(h.call("POST", "/code/context", "{").status == 400);
  const auto none = h.call("GET", "/code/contexts?language=python");
  CHECK(none.status == 200);
  CHECK(none.body == "[]");
  CHECK(h.call("GET", "/code/contexts/c").status == 404);
  CHECK(h.call("DELETE", "/code/contexts/c").body.starts_with(R"({"code":"CONTEXT_NOT_FOUND")"));
  CHECK(h.call("DELETE", "/code/contexts").body.starts_with(R"({"code":"MISSING_QUERY")"));
  const auto gone = h.call("DELETE", "/code/contexts?language=python");
  CHECK(gone.status == 200);
  CHECK(gone.fields.at("content-length") == "0");
  CHECK(h.call("DELETE", "/code").status == 400);
  CHECK(h.call("DELETE", "/code?id=abcd").status == 200);
  CHECK(h.heard().has("interrupt abcd"));
}

TEST_CASE("isolated sessions are refused, and said to be", "[http][execd]") {
  pty_house h;
  const auto can = h.call("GET", "/v1/isolated/capabilities");
  CHECK(can.status == 200);
  CHECK(can.body.starts_with(R"({"available":false,"message":")"));
  CHECK(can.body.ends_with(R"(","commit_supported":false,"diff_supported":false})"));
  for (const auto& [method, path] : {std::pair{"POST", "session"},
                                     {"GET", "sessions"},
                                     {"DELETE", "session/x"},
                                     {"POST", "session/x/run"},
                                     {"POST", "capabilities"}}) {
    const auto got = h.call(method, std::string{"/v1/isolated/"} + path, "{}");
    CHECK(got.status == 503);
    CHECK(got.body.starts_with(R"({"code":"NOT_SUPPORTED","message":")"));
  }
}

TEST_CASE("a slash too many is led to where it is known", "[http][execd]") {
  http::server_options options;
  options.execd = http::server_options::execd_listener{"127.0.0.1", 0};
  house h{options};
  const auto where = [&](const std::string& method, const std::string& path, int status) {
    const auto got = ask(h.port(), method, base + path);
    CHECK(got.status == status);
    return got.fields.count("location") > 0 ? got.fields.at("location") : "";
  };
  CHECK(where("GET", "/ping/", 301) == base + "/ping");
  CHECK(where("GET", "/command/x/logs/?cursor=1", 301) == base + "/command/x/logs?cursor=1");
  CHECK(where("DELETE", "/command/?id=1", 307) == base + "/command?id=1");
  CHECK(where("POST", "/command/", 307) == base + "/command");
  CHECK(where("POST", "/ping/", 404).empty());
  CHECK(where("GET", "/nowhere/", 404).empty());
  CHECK(where("GET", "/", 404).empty());
  const auto alone = ask(h.server().execd_port(), "GET", "/ping/");
  CHECK(alone.status == 301);
  CHECK(alone.fields.at("location") == "/ping");
}

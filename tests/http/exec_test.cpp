#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <openssl/evp.h>

#include <algorithm>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

const std::string exec_path = "/v1/sandbox/abc/exec";
const std::string echo = R"({"argv":["echo","a"]})";

std::string base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                  reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

std::string event(const std::string& name, const std::string& data) {
  return "event: " + name + "\ndata: " + data + "\n\n";
}

std::string exit_event(int code) {
  return event("exit", "{\"exit_code\":" + std::to_string(code) + "}");
}

std::string could_not_start(const std::string& reason) {
  return event("error", R"({"error":"Command execution failed","code":"exec_error","reason":")" +
                          reason + "\"}");
}

void check_error(const answer& got, int status, const std::string& message) {
  CHECK(got.status == status);
  CHECK(got.body == "{\"error\":\"" + message + "\",\"code\":\"invalid_request\"}");
}

/// A stream whose head has come.
struct open_stream {
  explicit open_stream(house& h, const std::string& body = echo)
      : to(h.port()) {
    to.send(request("POST", exec_path, body));
    head = to.read_until("\r\n\r\n");
  }
  client to;
  std::string head;
};

} // namespace

TEST_CASE("a short exec is byte for byte the contract's", "[http][exec]") {
  house h;
  h.plays().output = {{output_stream::out, "a\n"}};
  const auto got = ask(h.port(), "POST", exec_path, echo);
  CHECK(got.status == 200);
  CHECK(got.fields.at("content-type") == "text/event-stream");
  CHECK(got.fields.at("cache-control") == "no-cache");
  CHECK(got.fields.at("transfer-encoding") == "chunked");
  CHECK(got.complete);
  CHECK(got.body == "event: stdout\ndata: YQo=\n\nevent: exit\ndata: {\"exit_code\":0}\n\n");
  CHECK(h.heard().all() == std::vector<std::string>{"find abc", "exec echo a", "read 0 attached"});
}

TEST_CASE("the command is quoted, placed and limited in time", "[http][exec]") {
  house h;
  const auto got = ask(h.port(), "POST", exec_path,
                       R"({"argv":["sh","-c","echo $A_B",7],"cwd":"src/../x","timeout_ms":1.5})");
  CHECK(got.body == exit_event(0));
  const auto command = h.last_exec();
  CHECK(command.command_line == "sh -c $'echo $A_B' 7");
  CHECK(command.cwd == "/workspace/x");
  CHECK(command.timeout_ms == 2);
  ask(h.port(), "POST", exec_path, R"({"argv":["a"],"timeout_ms":1e300})");
  CHECK(h.last_exec().timeout_ms == 315'360'000'000);
  ask(h.port(), "POST", exec_path, R"({"argv":["a"],"timeout_ms":-3})");
  CHECK(h.last_exec().timeout_ms == -1);
  ask(h.port(), "POST", exec_path, R"({"argv":["a"],"timeout_ms":"5"})");
  CHECK_FALSE(h.last_exec().timeout_ms);
  CHECK(h.last_exec().cwd == "/workspace");
}

TEST_CASE("an exec request is checked in the contract's order", "[http][exec]") {
  house h;
  const auto post = [&](const std::string& body, const std::string& fields = {}) {
    return ask(h.port(), "POST", exec_path, body, fields);
  };
  const std::string bad_session = "Session-Id: a..b\r\n";
  check_error(post(""), 400, "Invalid JSON body");
  check_error(post("{", bad_session), 400, "Invalid JSON body");
  check_error(post(std::string(1'000'000, '[')), 400, "Invalid JSON body");
  check_error(post("null"), 400, "argv must be a non-empty array");
  check_error(post("{}", bad_session), 400, "argv must be a non-empty array");
  check_error(post(R"({"argv":["a"],"cwd":"/"})", bad_session), 400, "Invalid session ID format");
  check_error(post(echo, "Session-Id: a b\r\n"), 400, "Invalid session ID format");
  check_error(post(R"({"argv":["a"],"cwd":"/"})"), 403,
              "cwd must resolve to a location within /workspace");
  check_error(post(R"({"argv":["a"],"cwd":"/"})", "Session-Id: s1\r\n"), 403,
              "cwd must resolve to a location within /workspace");
  CHECK(h.heard().all().empty()); // No sandbox is started for a request that is refused.
  CHECK(post(echo, "Session-Id: \r\n").status == 200);
}

TEST_CASE("the head comes before the command has printed anything", "[http][exec]") {
  house h;
  h.plays().end.reset();
  open_stream stream{h};
  CHECK(stream.head.substr(0, 17) == "HTTP/1.1 200 OK\r\n");
  REQUIRE(h.heard().has("read 0 attached"));
  h.print(output_stream::err, "x");
  CHECK(stream.to.chunk() == event("stderr", "eA=="));
  h.end_command({7});
  CHECK(stream.to.chunk() == exit_event(7));
  CHECK(stream.to.chunk().empty());
  stream.to.send(request("GET", "/health")); // The connection can be used again.
  CHECK(stream.to.receive().status == 200);
}

TEST_CASE("a character is never cut in two, bytes are never changed", "[http][exec]") {
  house h;
  h.plays().output = {{output_stream::out, "a\xe2\x82"},
                      {output_stream::err, "\xf0\x9f"},
                      {output_stream::out, "\xac\xff"},
                      {output_stream::out, "\xc3"}};
  const auto got = ask(h.port(), "POST", exec_path, echo);
  CHECK(got.body == event("stdout", base64("a")) + event("stdout", base64("\xe2\x82\xac\xff")) +
                      event("stdout", base64("\xc3")) + event("stderr", base64("\xf0\x9f")) +
                      exit_event(0));
}

TEST_CASE("a timeout is told on stderr and as exit 124", "[http][exec]") {
  house h;
  h.plays().end = process_end{143, true, false, 0};
  const auto got =
    ask(h.port(), "POST", exec_path, R"({"argv":["sleep","9"],"timeout_ms":1500.5})");
  CHECK(got.body ==
        event("stderr", base64("Command timed out after 1500.5ms\n")) + exit_event(124));
}

TEST_CASE("a command that ran out of memory says so on stderr, with the limit", "[http][exec]") {
  house h;
  const auto said = [&h](std::uint64_t limit_bytes) {
    h.plays().end = process_end{137, false, true, limit_bytes};
    return ask(h.port(), "POST", exec_path, echo).body;
  };
  const auto told = [](const std::string& line) {
    return event("stderr", base64(line)) + exit_event(137);
  };
  CHECK(said(2ull << 30)
          .ends_with(told("Command killed: out of memory (the sandbox's limit is 2GiB)\n")));
  CHECK(said(1536ull << 20)
          .ends_with(told("Command killed: out of memory (the sandbox's limit is 1536MiB)\n")));
  CHECK(said(1'000'001).ends_with(
    told("Command killed: out of memory (the sandbox's limit is 1000001)\n")));
  CHECK(said(0).ends_with(told("Command killed: out of memory\n")));
}

TEST_CASE("what cannot be started ends with an error event", "[http][exec]") {
  house h;
  CHECK(ask(h.port(), "POST", exec_path, R"({"argv":["a\u0000b"]})").body ==
        could_not_start("argv[0] has a NUL character"));
  CHECK(ask(h.port(), "POST", exec_path, R"({"argv":["a"],"cwd":"a\u0000b"})").body ==
        could_not_start("cwd has a NUL character"));
  h.plays().exec_error = error{errc::launch_failed, "no such directory"};
  CHECK(ask(h.port(), "POST", exec_path, echo).body == could_not_start("no such directory"));
  h.plays().exec_error = error{errc::limit_reached, "too many commands"};
  CHECK(
    ask(h.port(), "POST", exec_path, echo).body ==
    event("error", R"({"error":"exec failed: too many commands","code":"exec_transport_error"})"));
}

TEST_CASE("a sandbox that ends in between is looked for once more", "[http][exec]") {
  house h;
  h.plays().stale_once = true;
  CHECK(ask(h.port(), "POST", exec_path, echo).body == exit_event(0));
}

TEST_CASE("the end of sandbox or process is an error event, never an exit", "[http][exec]") {
  house h;
  const auto ended = event("error", R"({"error":"the sandbox has ended","code":"exec_error"})");
  h.plays().die_on_exec = true;
  CHECK(ask(h.port(), "POST", exec_path, echo).body == ended);
  house other;
  other.plays().end.reset();
  open_stream stream{other};
  REQUIRE(other.heard().has("read 0 attached"));
  other.kill_command();
  CHECK(stream.to.chunk() == ended);
  CHECK(stream.to.chunk().empty());
}

TEST_CASE("a client that leaves detaches, and the command goes on", "[http][exec]") {
  house h;
  h.plays().end.reset();
  open_stream stream{h};
  REQUIRE(h.heard().has("read 0 attached"));
  stream.to.close();
  CHECK(h.heard().has("detached"));
}

TEST_CASE("a reader that was dropped for slowness is cut off", "[http][exec]") {
  house h;
  h.plays().output = {{output_stream::out, "x"}};
  h.plays().end.reset();
  h.plays().read_error = error{errc::deadline_exceeded, "nothing taken"};
  const auto got = ask(h.port(), "POST", exec_path, echo);
  CHECK(got.body == event("stdout", "eA=="));
  CHECK_FALSE(got.complete);
}

TEST_CASE("the next output is asked for when the socket has taken the last", "[http][exec]") {
  house h;
  const std::string big(128 * 1024, 'x');
  h.plays().output.assign(400, {output_stream::out, big}); // 70 MB as base64: no socket takes that.
  client slow{h.port()};
  slow.send(request("POST", exec_path, echo, "Connection: close\r\n"));
  slow.read_until("\r\n\r\n");
  REQUIRE(h.heard().has("read 0 attached"));
  slow.read(1'000'000);
  CHECK(h.heard().all().size() < 200); // 3 for the start, then one for each answer.
  std::size_t bytes = 1'000'000;
  for (;;) {
    const auto some = slow.read(1'000'000);
    bytes += some.size();
    if (some.size() < 1'000'000)
      break;
  }
  CHECK(bytes > 69'000'000);
}

TEST_CASE("silence is filled with comments", "[http][exec]") {
  http::server_options options;
  options.heartbeat = 20ms;
  house h{options};
  h.plays().end.reset();
  open_stream stream{h};
  CHECK(stream.to.chunk() == ":\n\n");
  CHECK(stream.to.chunk() == ":\n\n");
  h.end_command({0});
  std::string next;
  while ((next = stream.to.chunk()) == ":\n\n") {
  }
  CHECK(next == exit_event(0));
  CHECK(stream.to.chunk().empty());
}

TEST_CASE("a stream of which the node lost a part ends with an error, never with the exit code",
          "[http][exec]") {
  house h;
  h.plays().output = {{output_stream::out, "a\n"}};
  h.plays().lost_bytes = 5;
  const auto got = ask(h.port(), "POST", exec_path, echo);
  CHECK(got.body == event("error", R"({"error":"exec failed: output could not be kept",)"
                                   R"("code":"exec_transport_error"})"));
  CHECK(h.heard().has("detached")); // Nobody reads on: the command must not wait for a reader.
}

TEST_CASE("a stream that is given up detaches, one that has seen the command's end need not",
          "[http][exec]") {
  house h;
  h.plays().output = {{output_stream::out, "x"}};
  h.plays().end.reset();
  const auto code = GENERATE(errc::deadline_exceeded, errc::io_failed);
  h.plays().read_error = error{code, "no more"};
  ask(h.port(), "POST", exec_path, echo);
  CHECK(h.heard().has("detached"));
  house other;
  ask(other.port(), "POST", exec_path, echo);
  ask(other.port(), "POST", exec_path, echo);
  const auto heard = other.heard().all();
  CHECK(std::find(heard.begin(), heard.end(), "detached") == heard.end());
}

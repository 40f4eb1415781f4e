// OpenSandbox's terminals, in real sandboxes.
#include "base/limits.hpp"
#include "tests/e2e/node.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"

#include <csignal>

using namespace insula::test;

namespace {

struct pty_node : node {
  explicit pty_node(const std::string& yaml = {})
      : node(yaml) {
    REQUIRE(sh("a", "true").exit_code == 0); // There is one.
  }

  static std::string path(const std::string& rest) { return "/sandboxes/a/proxy/44772/pty" + rest; }
  http_answer call(const std::string& method, const std::string& rest,
                   const std::string& body = {}) const {
    return ask(method, path(rest), body);
  }
  std::string make(const std::string& body = {}) const {
    const auto made = call("POST", "", body);
    REQUIRE(made.status == 201);
    return made.body.substr(15, 32);
  }
  bool runs(const std::string& id) const {
    return call("GET", "/" + id).body.find(R"("running":true)") != std::string::npos;
  }
};

/// Somebody at such a terminal, who has been told that all is there.
struct visitor : web_socket_client {
  visitor(const node& at, const std::string& id, const std::string& query = {})
      : web_socket_client(at.port(), pty_node::path("/" + id + "/ws" + query)) {
    REQUIRE(head().status == 101);
    auto first = next();
    if (first.kind == frame_kind::binary) {
      REQUIRE(first.bytes.size() > 9);
      REQUIRE(first.bytes[0] == 3);
      for (std::size_t i = 1; i <= 8; ++i)
        offset = offset << 8 | static_cast<unsigned char>(first.bytes[i]);
      replay = first.bytes.substr(9);
      first = next();
    }
    REQUIRE(first.bytes == R"({"type":"connected","session_id":")" + id + R"(","mode":"pty"})");
  }

  void enter(const std::string& text) { type(std::string(1, '\0') + text); }
  /// What is printed until that has come.
  std::string read_until(const std::string& mark) {
    std::string all;
    while (all.find(mark) == std::string::npos) {
      const auto got = next();
      if (got.kind != frame_kind::binary || got.bytes.empty() || got.bytes[0] != 1)
        return all + "<" + got.bytes + ">";
      all += got.bytes.substr(1);
    }
    return all;
  }
  /// The same, if it has not been shown again already.
  void await(const std::string& mark) {
    if (replay.find(mark) == std::string::npos)
      read_until(mark);
  }
  /// The last words, after whatever is still printed.
  std::pair<std::string, frame> end() {
    std::string words;
    for (;;) {
      const auto got = next();
      if (got.kind == frame_kind::close)
        return {words, got};
      if (got.kind == frame_kind::text)
        words = got.bytes;
    }
  }

  std::string replay;
  std::uint64_t offset = 0;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("execd: at a terminal one types, resizes and sends signals", "[execd][terminal]") {
  const pty_node it;
  const auto id = it.make();
  CHECK(it.call("GET", "/" + id).body ==
        R"({"session_id":")" + id + R"(","running":false,"output_offset":0})");
  visitor one{it, id};
  CHECK(it.runs(id));
  one.enter("stty size; pwd; echo $TERM 'en'd.\n");
  CHECK(has(one.read_until("end.\r\n"), "24 80\r\n/workspace\r\nxterm-256color end."));
  one.tell(R"({"type":"resize","cols":100,"rows":30})");
  one.tell(R"({"type":"stdin","data":"stty size; echo 're'sized\n"})");
  CHECK(has(one.read_until("resized\r\n"), "30 100\r\n"));
  const auto busy = it.make(
    R"({"command":"trap 'n=$((n+1))' TERM; n=0; while :; do echo tick $n.; sleep 0.1; done"})");
  visitor other{it, busy};
  other.await("tick 0.\r\n");
  other.tell(R"({"type":"signal","signal":"SIGTERM"})");
  CHECK(has(other.read_until("tick 1.\r\n"), "tick 1."));
  other.tell(R"({"type":"signal","signal":"SIGKILL"})");
  CHECK(other.end().first == R"({"type":"exit","exit_code":-1})");
  one.tell(R"({"type":"ping"})");
  frame word = one.next();
  while (word.kind == frame_kind::binary)
    word = one.next();
  CHECK(word.bytes == R"({"type":"pong"})");
  one.enter("exit 7\n");
  const auto [words, close] = one.end();
  CHECK(words == R"({"type":"exit","exit_code":7})");
  CHECK(close.code == 1000);
  CHECK(close.bytes == "process exited");
  CHECK(eventually([&] { return !it.runs(id); }));
}

TEST_CASE("execd: who comes back to a terminal is shown what was printed since",
          "[execd][terminal]") {
  const pty_node it;
  const auto id = it.make(R"({"command":"echo started; exec cat","cwd":"~"})");
  std::uint64_t seen = 0;
  {
    visitor one{it, id};
    auto all = one.replay;
    if (!has(all, "started\r\n")) // Else what is typed comes before it.
      all += one.read_until("started\r\n");
    one.enter("first\n");
    all += one.read_until("first\r\nfirst\r\n");
    seen = one.offset + all.size();
    CHECK(it.call("GET", "/" + id).body == R"({"session_id":")" + id +
                                             R"(","running":true,"output_offset":)" +
                                             std::to_string(seen) + "}");
    // One at a time.
    const web_socket_client second{it.port(), pty_node::path("/" + id + "/ws")};
    CHECK(second.head().status == 409);
    visitor third{it, id, "?takeover=1&since=" + std::to_string(seen)};
    CHECK(third.replay.empty());
    const auto [words, close] = one.end();
    CHECK(close.code == 4001);
    CHECK(close.bytes == "TAKEN_OVER");
    third.enter("second\n");
    third.read_until("second\r\nsecond\r\n");
  }
  visitor back{it, id, "?takeover=1&since=" + std::to_string(seen)};
  CHECK(back.replay == "second\r\nsecond\r\n");
  CHECK(back.offset == seen);
  CHECK(it.call("DELETE", "/" + id).status == 200);
  const auto [words, close] = back.end();
  CHECK(words == R"({"type":"exit","exit_code":-1})");
  CHECK(close.code == 1000);
  CHECK(it.call("GET", "/" + id).status == 404);
  CHECK(it.call("DELETE", "/" + id).status == 404);
  CHECK(web_socket_client{it.port(), pty_node::path("/" + id + "/ws")}.head().status == 404);
  CHECK(it.sh("a", "pgrep -x cat").exit_code == 1);
}

TEST_CASE("execd: a megabyte of what was printed is shown again", "[execd][terminal]") {
  const pty_node it;
  const auto id = it.make(R"({"command":"seq 400000; echo over; exec cat"})");
  std::string all;
  {
    visitor one{it, id};
    all = one.replay + one.read_until("over\r\n");
  }
  REQUIRE(all.size() > (2u << 20));
  visitor back{it, id, "?takeover=1"};
  CHECK(back.offset == all.size() - (1u << 20));
  CHECK(back.replay == all.substr(back.offset));
}

TEST_CASE("execd: terminals survive a server that is killed, and are known to the next",
          "[execd][terminal]") {
  pty_node it;
  const auto used = it.make();
  const auto unused = it.make(R"({"command":"echo never; exec cat"})");
  {
    visitor one{it, used};
    one.enter("KEPT=yes; echo 'pri'nted\n");
    one.read_until("printed\r\n");
  }
  it.crash_server();
  it.node::start();
  CHECK(it.runs(used));
  CHECK_FALSE(it.runs(unused));
  visitor back{it, used};
  CHECK(has(back.replay, "printed\r\n"));
  back.enter("echo still $KEPT.\n");
  back.read_until("still yes.\r\n");
  visitor first{it, unused};
  first.await("never\r\n");
  CHECK(it.runs(unused));
  CHECK(it.call("DELETE", "/" + used).status == 200);
  CHECK(back.end().first == R"({"type":"exit","exit_code":-1})");
}

TEST_CASE("execd: a terminal whose directory is not there begins at home", "[execd][terminal]") {
  const pty_node it;
  visitor one{it, it.make(R"({"cwd":"/nowhere"})")};
  one.enter("pwd; echo 'en'd.\n");
  CHECK(has(one.read_until("end.\r\n"), "/home/sandbox\r\n"));
}

TEST_CASE("execd: a terminal that cannot start, or is nobody's, is refused before the upgrade",
          "[execd][terminal]") {
  const pty_node it;
  const auto refused = [&](const std::string& id, const std::string& query = {}) {
    return web_socket_client{it.port(), pty_node::path("/" + id + "/ws" + query)}.head().status;
  };
  const auto nowhere = it.make(R"({"cwd":"$NOWHERE"})");
  CHECK(refused(nowhere) == 400);
  CHECK(refused(it.make(), "?pty=0") == 400);
  CHECK(refused(std::string(32, '0')) == 404);
  CHECK(it.ask("POST", "/sandboxes/nobody/proxy/44772/pty").status == 404);
  CHECK(it.call("GET", "/" + nowhere).status == 200); // It can be tried again.
}

TEST_CASE("execd: of too many terminals a shell that nobody uses gives way", "[execd][terminal]") {
  const pty_node it;
  // A command is not a shell that waits, though this one is bash.
  const auto command = it.make(R"({"command":"read line"})");
  { const visitor one{it, command}; }
  std::vector<std::string> shells;
  for (std::size_t i = 1; i < insula::limits::terminals_per_sandbox; ++i) {
    shells.push_back(it.make());
    visitor one{it, shells.back()};
    one.enter("echo 'rea'dy.\n");
    one.read_until("ready.\r\n");
  }
  const auto more = it.make();
  const auto opens = [&](const std::string& id) {
    return web_socket_client{it.port(), pty_node::path("/" + id + "/ws")}.head().status == 101;
  };
  REQUIRE(eventually([&] { return opens(more); }, 30s));
  CHECK(it.runs(more));
  CHECK(it.runs(command));
  std::size_t run = 0;
  for (const auto& each : shells)
    run += it.runs(each);
  CHECK(run == shells.size() - 1);
  CHECK_FALSE(it.runs(shells.front()));
  // It is still known, and starts again.
  REQUIRE(eventually([&] { return opens(shells.front()); }, 30s));
  // With a client at each there is no room.
  std::vector<std::unique_ptr<visitor>> all;
  for (const auto& each : shells)
    if (it.runs(each))
      all.push_back(std::make_unique<visitor>(it, each, "?takeover=1"));
  if (it.runs(more))
    all.push_back(std::make_unique<visitor>(it, more, "?takeover=1"));
  const auto last = it.make();
  const web_socket_client refused{it.port(), pty_node::path("/" + last + "/ws")};
  CHECK(refused.head().status == 429);
  CHECK(
    has(refused.head().body, R"("code":"RUNTIME_ERROR","message":"the sandbox has 48 terminals)"));
}

#include "base/limits.hpp"
#include "tests/e2e/node.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"

#include <csignal>
#include <fstream>
#include <future>
#include <sys/socket.h>

using namespace insula::test;

namespace {

const std::string ready = R"({"type":"ready"})";

std::string pty(std::string_view id, std::string_view query = {}) {
  return "/v1/sandbox/" + std::string{id} + "/pty" + std::string{query};
}

std::string failure(std::string_view text) {
  return "{\"error\":\"" + std::string{text} + "\",\"code\":\"invalid_request\"}";
}

/// Somebody at a terminal, who has been told that it is ready.
struct visitor : web_socket_client {
  visitor(const node& at, std::string_view id, std::string_view query = {},
          std::string_view fields = {})
      : web_socket_client(at.port(), pty(id, query), fields) {
    INFO(head().body);
    REQUIRE(head().status == 101);
    auto first = next();
    if (first.kind == frame_kind::binary) {
      replay = first.bytes;
      first = next();
    }
    REQUIRE(first.kind == frame_kind::text);
    REQUIRE(first.bytes == ready);
  }

  std::string replay;
};

} // namespace

TEST_CASE("a request for a terminal that is none is refused, in the contract's order",
          "[terminal]") {
  const node it{"server: {api_key: secret}"};
  const std::string key = "Authorization: Bearer secret\r\n";
  const std::string upgrade = "Upgrade: websocket\r\n";
  const auto ask = [&](std::string_view query, const std::string& fields) {
    return it.ask("GET", pty("a", query), {}, fields);
  };
  CHECK(ask("", upgrade).status == 401);
  CHECK(ask("?token=secret", upgrade).status == 401);
  CHECK(ask("?cols=abc", key).body == failure("WebSocket upgrade required"));
  CHECK(ask("", key + "Upgrade: h2c\r\n").body == failure("WebSocket upgrade required"));
  for (const auto* query : {"?cols=abc", "?rows=1_0", "?cols=80&rows=0x", "?session=..&cols=x"}) {
    const auto got = ask(query, key + upgrade);
    CHECK(got.status == 400);
    CHECK(got.body == failure("cols and rows must be valid numbers"));
  }
  CHECK(ask("?session=..", key + upgrade).body == failure("Invalid session ID format"));
  CHECK(ask("?session=ok", key + upgrade + "Session-Id: a/b\r\n").body ==
        failure("Invalid session ID format"));
  for (const auto* rest :
       {"", "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n",
        "Connection: Upgrade\r\nSec-WebSocket-Version: 8\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"}) {
    const auto got = ask("", key + upgrade + rest);
    CHECK(got.status == 400);
    CHECK(got.body == failure("Invalid WebSocket handshake"));
  }
  CHECK(it.ask("POST", pty("a"), {}, key + upgrade).status == 404);
  const web_socket_client wrong{it.port(), pty("a")};
  CHECK(wrong.head().status == 401);
  const web_socket_client nowhere{it.port(), pty("a", "?shell=/nowhere"), key};
  CHECK(nowhere.head().status == 502);
  CHECK(nowhere.head().body ==
        R"({"error":"terminal failed: running the program /nowhere: No such file or directory",)"
        R"("code":"exec_transport_error"})");
  visitor right{it, "a", "", key};
  right.type("exit\n");
  CHECK(right.to_end().code == 1000);
}

TEST_CASE("a new terminal says that it is ready, and then what its shell prints", "[terminal]") {
  const node it;
  visitor one{it, "a", "?cols=100&rows=40"};
  CHECK(one.replay.empty());
  CHECK(one.head().fields.count("x-request-id") == 1);
  CHECK(one.until("$ ").find("\x1b[H\x1b[2J") != std::string::npos);
  one.type("tty; stty size; echo $TERM; pwd; echo 'en'd.\n");
  CHECK(one.until("end.\r\n").find("/dev/pts/0\r\n40 100\r\nxterm-256color\r\n/workspace\r\n") !=
        std::string::npos);
  one.type("echo '\xe2\x82");
  one.type("\xac'.\n");
  CHECK(one.until("\xe2\x82\xac.\r\n").find('<') == std::string::npos);
}

TEST_CASE("sizes that no terminal has are the default", "[terminal]") {
  const node it;
  int number = 0;
  for (const auto& [query, size] : {std::pair{"cols=0&rows=-1", "24 80"},
                                    {"cols=1000000000&rows=1e9", "24 80"},
                                    {"cols=Infinity&rows=", "24 80"},
                                    {"cols=0x10&rows=%2012%20", "12 16"},
                                    {"cols=99.9&rows=1e1", "10 99"},
                                    {"cols=65535&rows=65536", "24 65535"}}) {
    const auto session = "&session=s" + std::to_string(++number);
    visitor one{it, "a", "?" + std::string{query} + session};
    one.type("stty size; echo 'en'd.\n");
    CHECK(one.until("end.\r\n").find("\r" + std::string{size} + "\r\n") != std::string::npos);
  }
}

TEST_CASE("control messages are answered as the contract has it", "[terminal]") {
  const node it;
  visitor one{it, "a"};
  visitor other{it, "a"};
  const std::string wrong = R"({"type":"error","message":"Invalid control message"})";
  const std::string odd =
    R"({"type":"error","message":"Invalid dimensions: cols and rows must be positive"})";
  const auto answer = [&](std::string_view to) {
    one.tell(to);
    for (;;)
      if (const auto got = one.next(); got.kind != frame_kind::binary)
        return got.bytes;
  };
  for (const auto* text :
       {"", "resize", "null", "{", R"({"type":"resize"})", R"({"type":"resize","cols":80})",
        R"({"type":"resize","cols":"80","rows":"24"})",
        R"({"type":"resize","cols":null,"rows":24})",
        R"({"type":"resize","cols":1000000000,"rows":24})",
        R"({"type":"resize","cols":[80],"rows":24})"}) {
    CAPTURE(text);
    CHECK(answer(text) == wrong);
  }
  for (const auto* text :
       {R"({"type":"resize","cols":0,"rows":24})", R"({"type":"resize","cols":80,"rows":-1})",
        R"({"type":"resize","cols":-1e9,"rows":0.0})"}) {
    CAPTURE(text);
    CHECK(answer(text) == odd);
  }
  for (const auto* text : {"[]", "5", "\"resize\"", "true", "{}", R"({"type":"exit"})",
                           R"({"cols":80,"rows":24})", R"([{"type":"resize"}])"})
    one.tell(text);
  one.tell(R"({"type":"resize","cols":132.9,"rows":50,"more":{"cols":1}})");
  one.type("stty size; echo 'en'd.\n");
  CHECK(one.until("end.\r\n").find("\r50 132\r\n") != std::string::npos);
  // The other has been told of nothing.
  other.type("echo mine.\n");
  CHECK(other.until("mine.\r\n").find('<') == std::string::npos);
}

TEST_CASE("a terminal lives on without its clients, and shows what they have missed",
          "[terminal]") {
  const node it;
  {
    visitor one{it, "a", "?session=dev"};
    one.type("trap 'echo resized' WINCH; (until [ -e go ]; do sleep 0.05; done; seq 60000; echo "
             "'all'\".\") &\n");
    one.until("$ ");
  }
  it.sh("a", "touch go");
  REQUIRE(eventually(
    [&] {
      visitor look{it, "a", "?session=dev"};
      return look.replay.ends_with("all.\r\n");
    },
    60s));
  visitor back{it, "a", "?cols=10&session=other", "Session-Id: dev\r\n"};
  CHECK(back.replay.size() == insula::limits::terminal_bytes);
  CHECK(back.replay.ends_with("60000\r\nall.\r\n"));
  back.type("stty size; echo 'en'd.\n");
  const auto printed = back.until("end.\r\n");
  CHECK(printed.find("24 80\r\n") != std::string::npos); // Its own size was not asked for.
  CHECK(printed.find("59999") == std::string::npos);     // And nothing comes twice.
}

TEST_CASE("everybody at a terminal sees the same, and its end", "[terminal]") {
  const node it;
  std::vector<std::unique_ptr<visitor>> all;
  for (int i = 0; i < 5; ++i)
    all.push_back(std::make_unique<visitor>(it, "a"));
  all[1]->type("echo from' 'one\n");
  for (auto& each : all)
    CHECK(each->until("from one\r\n").find('<') == std::string::npos);
  visitor apart{it, "a", "?session=apart"};
  SECTION("with a code") {
    all[2]->type("exit 7\n");
    for (auto& each : all) {
      const auto end = each->to_end();
      CHECK(end.told == "{\"type\":\"exit\",\"code\":7}\n");
      CHECK(end.code == 1000);
      CHECK(each->raw().at_end());
    }
  }
  SECTION("by a signal") {
    all[2]->type("kill -9 $$\n");
    for (auto& each : all) {
      const auto end = each->to_end();
      CHECK(end.told == "{\"type\":\"exit\",\"code\":137,\"signal\":\"SIGKILL\"}\n");
      CHECK(end.code == 1000);
    }
  }
  SECTION("with what it printed last") {
    all[2]->type("PS1=; exec bash -c 'seq 20000; exit 3'\n");
    for (auto& each : all) {
      const auto end = each->to_end();
      CHECK(end.printed.ends_with("19999\r\n20000\r\n"));
      CHECK(end.told == "{\"type\":\"exit\",\"code\":3}\n");
    }
  }
  visitor next{it, "a"};
  CHECK(next.replay.empty());
  next.type("echo new.\n");
  next.until("new.\r\n");
  apart.type("echo untouched.\n");
  apart.until("untouched.\r\n");
}

TEST_CASE("a sandbox that is deleted tells those at its terminals", "[terminal]") {
  const node it;
  visitor one{it, "a"};
  visitor two{it, "a", "?session=two"};
  SECTION("deleted") {
    CHECK(it.remove("a") == 204);
  }
  SECTION("killed") {
    const auto spawner = std::to_string(it.spawner());
    std::ifstream children{"/proc/" + spawner + "/task/" + spawner + "/children"};
    pid_t agent = it.gateway();
    while (agent == it.gateway())
      REQUIRE(children >> agent);
    ::kill(agent, SIGKILL);
  }
  for (auto* each : {&one, &two}) {
    const auto end = each->to_end();
    CHECK(end.told == "{\"type\":\"error\",\"message\":\"the sandbox has ended\"}\n");
    CHECK(end.code == 1001);
  }
  visitor again{it, "a"};
  CHECK(again.replay.empty());
}

TEST_CASE("a client that does not read holds up neither the shell nor the others", "[terminal]") {
  node it;
  visitor stalled{it, "a"};
  const int small = 4096;
  ::setsockopt(stalled.raw().fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  visitor other{it, "a"};
  other.type("stty raw -echo; yes | head -c 5000000 > /dev/null; echo warm.\n");
  other.until("warm.");
  const auto before = resident_bytes(it.pid());
  it.sh("a", "yes | head -c 30000000 > /workspace/much");
  // In a shell that waits for it, so that its end is the output's.
  other.type("cat much; rm much; touch done\n");
  REQUIRE(eventually([&] { return it.sh("a", "test -e done").exit_code == 0; }, 120s));
  CHECK(resident_bytes(it.pid()) < before + (16u << 20));
  other.raw().close();
  const int large = 1 << 20; // Or what has been sent would take minutes.
  ::setsockopt(stalled.raw().fd(), SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
  const auto end = stalled.to_end();
  CHECK(
    (end.code == 1013 || end.code == 1006)); // It may come again; or it took nothing for too long.
  visitor back{it, "a"};
  CHECK(back.replay.size() == insula::limits::terminal_bytes);
  back.type("stty sane; echo alive.\n");
  back.until("alive.");
}

TEST_CASE("a megabyte that is pasted arrives whole, and what is not read stays outside",
          "[terminal]") {
  node it;
  visitor one{it, "a"};
  one.type("stty raw -echo; echo 'go'.; head -c 1000000 | md5sum; echo 'over'.\n");
  one.until("go.");
  std::string paste;
  for (int i = 0; paste.size() < 1'000'000; ++i)
    paste += "line " + std::to_string(i) + "\n";
  paste.resize(1'000'000);
  one.type(paste);
  const auto same = it.sh("a", "seq -f 'line %.0f' 0 200000 | head -c 1000000 | md5sum").out;
  CHECK(one.until("over.").find(same.substr(0, 32)) != std::string::npos);
  // A program that never reads: the client is not read from either, and can still end it all.
  one.type("sleep 1000\n");
  const auto before = resident_bytes(it.pid());
  const timeval moment{2, 0};
  ::setsockopt(one.raw().fd(), SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment);
  for (int i = 0; i < 100 && one.type(paste); ++i) {
  }
  CHECK(resident_bytes(it.pid()) < before + (32u << 20));
  visitor other{it, "a"};
  other.tell(R"({"type":"resize","cols":80,"rows":24})");
  CHECK(it.remove("a") == 204);
  CHECK(other.to_end().code == 1001);
}

TEST_CASE("a thousand clients that come and go leave nothing behind", "[terminal]") {
  node it;
  visitor first{it, "a"};
  first.until("$ ");
  for (int i = 0; i < 20; ++i)
    visitor{it, "a"};
  const auto quiet = [&] {
    return it.ask("GET", "/metrics").body.find("insula_http_websockets 1\n") != std::string::npos;
  };
  REQUIRE(eventually(quiet, 60s));
  const auto files = open_files(it.pid());
  const auto processes = it.processes().size();
  for (int i = 0; i < 1000; ++i) {
    visitor one{it, "a"};
    if (i % 3 == 0)
      one.send(frame_kind::close, std::string{"\x03\xe8", 2});
    else if (i % 3 == 1)
      one.type("\n");
  }
  CHECK(eventually(quiet, 60s));
  CHECK(eventually([&] { return open_files(it.pid()) <= files + 1; }, 60s));
  CHECK(it.processes().size() == processes);
  first.type("echo still here.\n");
  first.until("here.\r\n");
}

TEST_CASE("a terminal that somebody has open keeps its sandbox, and the server tells its end",
          "[terminal]") {
  node it{"sandbox: {idle_timeout: 2s}"};
  visitor one{it, "a"};
  visitor elsewhere{it, "b"};
  elsewhere.raw().close();
  REQUIRE(eventually([&] { return it.log().find("sandbox.idle id=b") != std::string::npos; }, 60s));
  CHECK(it.log().find("sandbox.idle id=a") == std::string::npos);
  one.type("echo awake.\n");
  one.until("awake.\r\n");
  auto stopping = std::async(std::launch::async, [&] { return it.stop(SIGINT); });
  CHECK(one.to_end().code == 1001);
  one.raw().close();
  CHECK(stopping.get() == 0);
}

namespace {

constexpr int most = static_cast<int>(insula::limits::terminals_per_sandbox);

std::string in(const std::string& session) {
  return "?session=" + session;
}

/// One that has a prompt, of a session of its own.
std::unique_ptr<visitor> at_prompt(const node& at, const std::string& session,
                                   const std::string& query = {}) {
  auto made = std::make_unique<visitor>(at, "a", in(session) + query);
  made->type("echo 'rea'dy.\n");
  constexpr std::string_view is_ready = "ready.\r\n";
  const auto printed = made->until(is_ready);
  if (printed.find("$ ", printed.find(is_ready)) == std::string::npos)
    made->until("$ ");
  return made;
}

/// What a client is told that wants one more: nothing, with 101, if there is one.
http_answer try_one(const node& at, const std::string& session) {
  http_connection one{at.port()};
  one.send(upgrade_request(pty("a", in(session))));
  auto told = one.receive_head();
  while (told.status != 101) {
    const auto more = one.more();
    if (!more)
      break;
    told.body += *more;
  }
  return told;
}

bool opens(const node& at, const std::string& session) {
  return eventually([&] { return try_one(at, session).status == 101; }, 60s);
}

} // namespace

TEST_CASE("of too many terminals one that nobody uses gives way", "[terminal]") {
  const node it;
  std::vector<std::unique_ptr<visitor>> all;
  for (int i = 0; i < most; ++i)
    all.push_back(at_prompt(it, "s" + std::to_string(i)));
  // Each of these is left with something that is not to be lost.
  const std::vector<std::string> busy{
    "sleep 1000",
    "sleep 1000 &",
    "nohup sleep 1000 > /dev/null 2>&1 & disown",
    "(setsid sleep 1000 &); sleep 1000 & disown -a",
    "sleep 1000 & until grep -q sleep /proc/$!/comm; do :; done; kill -STOP %1",
    "exec cat",
    "exec bash -c 'while read line; do :; done'",
    "sh -c 'read line; true'",
    "python3 -c 'input()'",
  };
  for (std::size_t i = 0; i < busy.size(); ++i) {
    all[i]->type("echo be'gun'; " + busy[i] + "\n");
    all[i]->until("begun\r\n");
  }
  const std::string those_busy = "pgrep -c 'sleep|cat|python3'";
  REQUIRE(eventually([&] { return it.sh("a", those_busy).out == "8\n"; }, 60s));
  REQUIRE(eventually([&] { return it.sh("a", "pgrep -fc '[r]ead line'").out == "2\n"; }, 60s));
  const auto quiet = busy.size();
  for (std::size_t i = 0; i <= quiet; ++i)
    all[i].reset();           // All others have their clients.
  REQUIRE(opens(it, "more")); // Once it is known who has gone.
  auto more = at_prompt(it, "more");
  // Now there is none.
  const auto told = try_one(it, "yet-more");
  CHECK(told.status == 502);
  CHECK(
    told.body ==
    R"({"error":"terminal failed: the sandbox has 48 terminals, which is as many as it may, )"
    R"(and each has a client or runs something; end one of them","code":"exec_transport_error"})");
  // Nothing of what ran is lost.
  for (std::size_t i = 0; i < busy.size(); ++i) {
    CAPTURE(busy[i]);
    const visitor back{it, "a", in("s" + std::to_string(i))};
    CHECK(back.replay.find("begun") != std::string::npos);
  }
  CHECK(it.sh("a", those_busy).out == "8\n");
  // The session of the one that gave way has not ended with it.
  const auto name = "s" + std::to_string(quiet);
  CHECK(try_one(it, name).status == 502);
  more.reset();
  REQUIRE(opens(it, name));
  const visitor again{it, "a", in(name)};
  CHECK(again.replay.find("ready.") == std::string::npos);
}

TEST_CASE("who comes back while a terminal gives way finds it, or a new one, or no room",
          "[terminal]") {
  const node it;
  std::vector<std::unique_ptr<visitor>> all;
  for (int i = 1; i < most; ++i)
    all.push_back(at_prompt(it, "s" + std::to_string(i)));
  for (int round = 0; round < 8; ++round) {
    const auto mine = "mine" + std::to_string(round), more = "more" + std::to_string(round);
    REQUIRE(opens(it, mine));
    at_prompt(it, mine).reset();
    const auto told =
      at_once(2, [&](std::size_t which) { return try_one(it, which == 0 ? mine : more).status; });
    CAPTURE(round, told[0], told[1]);
    for (const auto status : told)
      CHECK((status == 101 || status == 502));
    CHECK((told[0] == 101 || told[1] == 101));
  }
  CHECK(eventually(
    [&] { return it.sh("a", "ls /dev/pts | grep -c '^[0-9]'").out == std::to_string(most) + "\n"; },
    60s));
}

TEST_CASE("a terminal of the last server gives way to one of this server", "[terminal]") {
  node it;
  {
    std::vector<std::unique_ptr<visitor>> all;
    for (int i = 0; i < most; ++i)
      all.push_back(at_prompt(it, "s" + std::to_string(i)));
    all[0]->type("echo be'gun'; sleep 1000\n");
    all[0]->until("begun\r\n");
    REQUIRE(eventually([&] { return it.sh("a", "pgrep -c sleep").out == "1\n"; }, 60s));
    it.crash_server();
  }
  it.start();
  REQUIRE(opens(it, "more"));
  const visitor busy{it, "a", in("s0")};
  CHECK(busy.replay.find("begun") != std::string::npos);
}

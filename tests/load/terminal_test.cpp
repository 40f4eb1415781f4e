#include "benchmarks/load/echoes.hpp"
#include "benchmarks/load/terminal.hpp"
#include "tests/load/scripted_server.hpp"
#include "tests/load/scripted_web_socket.hpp"
#include "tests/load/test_client.hpp"
#include "tests/support/catch.hpp"

using namespace insula::load;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

using script = std::function<void(scripted_web_socket::stream&)>;

terminal::opened open(test_client& by, std::chrono::milliseconds patience = 60s) {
  return by.get(terminal::open(by.http, "abc", "typed0", patience));
}

std::string how_opening_ends(std::uint16_t port, std::chrono::milliseconds patience = 60s) {
  test_client asks{port};
  return open(asks, patience).failure;
}

std::string how_opening_ends(const script& part) {
  const scripted_web_socket server{part};
  return how_opening_ends(server.port());
}

/// Of a terminal that is ready, and is told this.
std::string how_it_ends(const script& part) {
  const scripted_web_socket server{[&part](auto& it) {
    say(it, ready_message);
    hear(it);
    part(it);
    wait_for_end(it);
  }};
  test_client asks{server.port()};
  auto made = open(asks);
  CHECK(made.failure.empty());
  return asks.get(made.is->type_until("go on\n", "never", 60s));
}

std::string answer(const std::string& status) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: 2\r\n\r\n{}";
}

std::string refusal(const std::string& bytes, scripted_server::afterwards then) {
  const scripted_server server{bytes, then};
  return how_opening_ends(server.port());
}

} // namespace

TEST_CASE("a terminal is asked for with its size, its session and the key", "[load]") {
  const scripted_server server{answer("404 Not Found"), scripted_server::afterwards::is_silent};
  CHECK(how_opening_ends(server.port()) == "status 404");
  const auto heard = server.heard();
  for (const std::string part : {"GET /v1/sandbox/abc/pty?cols=80&rows=24&session=typed0 HTTP/1.1",
                                 "Upgrade: websocket", "Authorization: Bearer secret"}) {
    CAPTURE(heard, part);
    CHECK(heard.find(part) != std::string::npos);
  }
}

TEST_CASE("a terminal's refusal has one word for each way", "[load]") {
  constexpr auto closes = scripted_server::afterwards::closes;
  constexpr auto is_silent = scripted_server::afterwards::is_silent;
  CHECK(refusal(answer("401 Unauthorized"), is_silent) == "status 401");
  CHECK(refusal(answer("502 Bad Gateway"), closes) == "status 502");
  CHECK(refusal("", closes) == failure::cut);
  CHECK(refusal("HTTP/1.1 101 Swit", closes) == failure::cut);
  CHECK(refusal("SSH-2.0-server\r\n\r\n", is_silent) == failure::malformed);
  // 101, but not to what was asked.
  CHECK(refusal("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
                "upgrade\r\nSec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
                is_silent) == failure::malformed);
  // A head without an end.
  CHECK(refusal("HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x'), is_silent) ==
        failure::malformed);
  std::uint16_t port = 0;
  {
    const scripted_server gone{"", closes};
    port = gone.port();
  }
  CHECK(how_opening_ends(port) == failure::refused);
  const scripted_server slow{"HTTP/1.1 101 ", is_silent};
  CHECK(how_opening_ends(slow.port(), 30ms) == failure::timeout);
}

TEST_CASE("a terminal is there once the server has said that it is ready", "[load]") {
  CHECK(how_opening_ends([](auto& it) { say(it, ready_message); }).empty());
  // What it has printed before comes first; what nobody knows is nothing.
  CHECK(how_opening_ends([](auto& it) {
          print(it, "$ ");
          say(it, R"({"type":"news"})");
          say(it, ready_message);
        }).empty());
  CHECK(how_opening_ends([](auto& it) {
          say(it, R"({"type":"error","message":"Failed to create PTY: no"})");
        }) == "error message");
  CHECK(how_opening_ends([](auto& it) { it.close(1011); }) == "closed 1011");
  CHECK(how_opening_ends([](auto&) {}) == failure::cut);
  CHECK(how_opening_ends([](auto& it) { say(it, R"({"type":"exit","code":3})"); }) == "exit 3");

  const scripted_web_socket silent{wait_for_end};
  CHECK(how_opening_ends(silent.port(), 30ms) == failure::timeout);
}

TEST_CASE("what is typed arrives, and what is printed is found in pieces", "[load]") {
  std::string typed;
  const scripted_web_socket server{[&typed](auto& it) {
    say(it, ready_message);
    typed = hear(it);
    for (const char each : std::string{"$ echo rea''dy\r\nready\r\n$ "})
      print(it, {each});
    hear(it);
    wait_for_end(it);
  }};
  test_client asks{server.port()};
  std::string printed;
  {
    auto made = open(asks);
    REQUIRE(made.failure.empty());
    made.is->on_output([&printed](std::string_view bytes) { printed += bytes; });
    CHECK(asks.get(made.is->type_until("echo rea''dy\n", "ready", 60s)).empty());
    CHECK(typed == "echo rea''dy\n");
    CHECK(printed.find("ready") != std::string::npos);
    CHECK(made.is->printed_bytes() == printed.size());
    CHECK(asks.get(made.is->type_until("x", "never", 30ms)) == failure::timeout);
    CHECK(made.is->ended() == failure::timeout);
    CHECK_FALSE(asks.get(made.is->type("x"))); // It has ended.
  }
  CHECK(asks.http.under_way() == 0);
}

TEST_CASE("a terminal that ends says how", "[load]") {
  CHECK(how_it_ends([](auto& it) {
          print(it, "logout\r\n");
          say(it, R"({"type":"exit","code":7})");
          it.close(1000);
        }) == "exit 7");
  CHECK(how_it_ends([](auto& it) { it.close(1001); }) == "closed 1001");
  CHECK(how_it_ends([](auto& it) { it.next_layer().close(); }) == failure::cut);
  // An error that is told to one who has a terminal ends nothing.
  CHECK(how_it_ends([](auto& it) {
          say(it, R"({"type":"error","message":"Invalid control message"})");
          it.close(1000);
        }) == "closed 1000");
}

TEST_CASE("a terminal bears what no server should send", "[load]") {
  const auto malformed = [](const script& part) { return how_it_ends(part) == failure::malformed; };
  CHECK(malformed([](auto& it) { say(it, "ready"); }));
  CHECK(malformed([](auto& it) { say(it, "[]"); }));
  CHECK(malformed([](auto& it) { say(it, R"({"type":7})"); }));
  CHECK(malformed([](auto& it) { say(it, R"({"type":"exit","code":"7"})"); }));
  CHECK(malformed([](auto& it) { say(it, std::string(60'000, '[')); }));
  CHECK(malformed([](auto& it) { say(it, "\"" + std::string(70'000, 'x') + "\""); }));
  CHECK(malformed([](auto& it) { send_raw(it, std::string(16, '\xff')); })); // No such frame.
  CHECK(malformed([](auto& it) {
    send_raw(it, "\x82\x81"
                 "aaaax");
  }));                                                                  // Masked.
  CHECK(malformed([](auto& it) { send_raw(it, "\x81\x02\xc3\x28"); })); // Text that is none.
  CHECK(malformed([](auto& it) {
    send_raw(it, std::string{"\x80\x01x", 3});
  })); // Goes on with nothing.
  // Of four gigabytes, and one byte of it is there.
  CHECK(malformed([](auto& it) { send_raw(it, std::string{"\x82\x7f\0\0\0\1\0\0\0\0x", 11}); }));
}

TEST_CASE("a message of a terminal is one of few", "[load]") {
  using kind = terminal_message::kind;
  CHECK(parse_terminal_message(ready_message)->what == kind::ready);
  CHECK(parse_terminal_message(R"({"type":"exit","code":143,"signal":"SIGTERM"})")->code == 143);
  CHECK(parse_terminal_message(R"({"type":"error","message":"no"})")->what == kind::error);
  CHECK(parse_terminal_message(R"({"type":"other"})")->what == kind::other);
  for (const auto* wrong : {"", "{", "null", "{}", R"({"type":null})", R"({"type":"exit"})",
                            R"({"type":"exit","code":1e99})"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_terminal_message(wrong));
  }
}

TEST_CASE("one who has stalled reads nothing any more", "[load]") {
  std::atomic<bool> told{false};
  const scripted_web_socket server{[&told](auto& it) {
    say(it, ready_message);
    hear(it);
    told = true;
    for (;;)
      print(it, std::string(1 << 16, 'y')); // Until nobody takes it, and the other side has gone.
  }};
  test_client asks{server.port()};
  auto made = open(asks);
  REQUIRE(made.failure.empty());
  made.is->stall();
  CHECK(asks.get(made.is->type("yes\n")));
  while (!told)
    std::this_thread::yield();
  asks.io.restart();
  asks.io.run(); // It returns: there is nothing to wait for.
  CHECK(made.is->printed_bytes() <= 1 << 16);
  CHECK(made.is->ended().empty());
}

TEST_CASE("a terminal that is open when the run ends is let go", "[load]") {
  const scripted_web_socket server{[](auto& it) {
    say(it, ready_message);
    wait_for_end(it);
  }};
  test_client asks{server.port()};
  auto made = open(asks);
  REQUIRE(made.failure.empty());
  asks.http.let_go_at(clock::now());
  CHECK(asks.get(made.is->type_until("x", "never", 60s)) == failure::let_go);
  CHECK(open(asks).failure == failure::let_go);
}

TEST_CASE("an echo is the byte that is waited for, whatever else is printed", "[load]") {
  std::string back;
  std::vector<clock::time_point> typed;
  echoes all{[&](const echoes::key& key) {
    back += key.byte;
    typed.push_back(key.typed);
  }};
  const auto begin = clock::now();
  all.printed("a"); // Nobody has typed yet.
  CHECK(back.empty());
  all.typed({'a', begin});
  all.typed({'b', begin + 1ms});
  all.typed({'a', begin + 2ms});
  all.printed("\x1b[1mb"); // Comes before its turn.
  CHECK(back.empty());
  all.printed("\r> xa");
  CHECK(back == "a");
  all.printed("a"); // Another one than the one that is waited for.
  CHECK(back == "a");
  CHECK(all.waiting().size() == 2);
  all.printed("ba");
  CHECK(back == "aba");
  CHECK(typed == std::vector{begin, begin + 1ms, begin + 2ms});
  all.typed({'c', begin});
  all.forget();
  all.printed("c");
  CHECK(back == "aba");
}

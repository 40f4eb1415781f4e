#include "benchmarks/load/bridge.hpp"
#include "tests/load/scripted_server.hpp"
#include "tests/load/test_client.hpp"
#include "tests/support/catch.hpp"

#include <chrono>
#include <optional>

using namespace insula::load;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

constexpr auto closes = scripted_server::afterwards::closes;
constexpr auto is_silent = scripted_server::afterwards::is_silent;

std::string answer(const std::string& body, const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

std::string how_exec_ends(const std::string& bytes, scripted_server::afterwards then = is_silent) {
  const scripted_server server{bytes, then};
  return test_client{server.port()}.exec().failure;
}

const std::string hi = "event: stdout\ndata: aGkK\n\n";
const std::string good_exit = "event: exit\ndata: {\"exit_code\":0}\n\n";

} // namespace

TEST_CASE("an exec's end has one word for each way it can go wrong", "[load]") {
  CHECK(how_exec_ends(answer(hi + good_exit)).empty());
  CHECK(
    how_exec_ends(answer("event: stdout\ndata: aA==\n\nevent: stdout\ndata: aQo=\n\n" + good_exit))
      .empty());
  CHECK(how_exec_ends(answer(hi + "event: exit\ndata: {\"exit_code\":7}\n\n")) == "exit 7");
  CHECK(how_exec_ends(answer("event: stdout\ndata: aG8K\n\n" + good_exit)) == failure::wrong_bytes);
  CHECK(how_exec_ends(answer(hi)) == "no exit event");
  CHECK(
    how_exec_ends(answer("event: error\ndata: {\"error\":\"gone\",\"code\":\"exec_error\"}\n\n")) ==
    "error event");
  CHECK(how_exec_ends(answer(hi + "event: exit\ndata: never\n\n")) == failure::malformed);
  CHECK(how_exec_ends(answer(hi + good_exit + hi)) == failure::malformed);
  CHECK(how_exec_ends(answer("event: stdout\ndata: ***\n\n" + good_exit)) == failure::malformed);
  CHECK(how_exec_ends(answer("{}", "503 Service Unavailable")) == "status 503");
  CHECK(how_exec_ends("SSH-2.0-server\r\n\r\n") == failure::malformed);
  CHECK(how_exec_ends("", closes) == failure::cut);
  CHECK(how_exec_ends("HTTP/1.1 200 OK\r\nContent-Le", closes) == failure::cut);
  CHECK(how_exec_ends("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + hi, closes) ==
        failure::cut);
  // Chunked, without its last chunk, though the exit is there: whole is only what ends as it
  // should.
  CHECK(how_exec_ends("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n" + hi + "\r\n",
                      closes) == failure::cut);
}

TEST_CASE("a request that gets no answer in its time has timed out", "[load]") {
  const scripted_server server{"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", is_silent};
  CHECK(test_client{server.port()}.exec(30ms).failure == failure::timeout);
}

TEST_CASE("nobody there is refused, and says what the system says", "[load]") {
  std::uint16_t port = 0;
  {
    const scripted_server gone{"", closes};
    port = gone.port();
  }
  test_client asks{port};
  CHECK(asks.exec().failure == failure::refused);
  CHECK(asks.http.last_trouble() == "Connection refused");
}

TEST_CASE("a connection that the server has closed meanwhile is no failure", "[load]") {
  const scripted_server server{answer(hi + good_exit), closes};
  test_client asks{server.port()};
  for (int i = 1; i <= 20; ++i) {
    CHECK(asks.exec().failure.empty());
    while (server.closed() < i)
      std::this_thread::yield();
  }
}

TEST_CASE("what is let go is neither good nor bad, and cleaning up goes on", "[load]") {
  const scripted_server server{answer("", "204 No Content"), is_silent};
  test_client asks{server.port()};
  asks.http.let_go_at(clock::now());
  CHECK(asks.exec().failure == failure::let_go);
  CHECK(asks.get(asks.api.remove("abc")).ok());

  const scripted_server slow{"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", is_silent};
  test_client waits{slow.port()};
  std::optional<std::string> how;
  asio::co_spawn(waits.io, waits.api.exec("abc", {{"true"}, {}, 10s}),
                 [&how](const std::exception_ptr&, const exec_ending& end) { how = end.failure; });
  while (waits.http.under_way() == 0)
    waits.io.run_one();
  waits.http.let_go_at(clock::now());
  waits.http.look_at_deadlines(clock::now());
  waits.io.restart();
  waits.io.run();
  CHECK(how == failure::let_go);
}

TEST_CASE("files are compared with what was written", "[load]") {
  const pattern file{3, 100'000};
  const auto read = [&file](const std::string& there) {
    const scripted_server server{answer(there), is_silent};
    test_client asks{server.port()};
    return asks.get(asks.api.read_file("abc", "/workspace/f", file));
  };
  CHECK(read(file.text()).ok());
  CHECK(read(file.text()).bytes == file.size());
  auto other = file.text();
  other[77'777] ^= 1;
  CHECK(read(other).failure == failure::wrong_bytes);
  CHECK(read(file.text().substr(1)).failure == failure::wrong_bytes);
  CHECK(read(file.text() + "x").failure == failure::wrong_bytes);
}

TEST_CASE("what is created is remembered until it is deleted", "[load]") {
  const scripted_server server{answer(R"({"id":"abcdef"})"), is_silent};
  test_client asks{server.port()};
  CHECK(asks.get(asks.api.create()).id == "abcdef");
  CHECK(asks.api.made().count("abcdef") == 1);
  CHECK_FALSE(asks.get(asks.api.remove("abcdef")).ok()); // 200 is not what a delete answers.
  CHECK(asks.get(asks.api.remove_all()) == 1);
  CHECK(asks.api.made().empty());
}

TEST_CASE("a session is named in the path, the body or a header", "[load]") {
  const auto has = [](const scripted_server& server, const std::string& part) {
    return server.heard().find(part) != std::string::npos;
  };
  const scripted_server server{answer(R"({"id":"busy0"})"), is_silent};
  test_client asks{server.port()};
  CHECK(asks.get(asks.api.create_session("abc", "busy0")).ok());
  CHECK(has(server, "POST /v1/sandbox/abc/session HTTP/1.1\r\n"));
  CHECK(has(server, "\r\n\r\n{\"id\":\"busy0\"}"));
  CHECK(asks.get(asks.api.create_session("abc", "other")).failure == failure::malformed);
  CHECK(asks.get(asks.api.remove_session("abc", "busy0")).ok()); // As well as with 204.
  CHECK(has(server, "DELETE /v1/sandbox/abc/session/busy0 HTTP/1.1\r\n"));
  CHECK_FALSE(has(server, "Session-Id"));
  asks.get(asks.api.exec("abc", {{"cd", "/tmp"}, {}, 10s, "busy0"}));
  CHECK(has(server, "\r\nSession-Id: busy0\r\n"));
  asks.exec();
  CHECK_FALSE(has(server, "Session-Id"));

  const scripted_server without{answer("404 Not Found", "404 Not Found"), is_silent};
  test_client told{without.port()};
  CHECK(told.get(told.api.create_session("abc", "busy0")).failure == "status 404");
}

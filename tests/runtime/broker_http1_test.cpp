// Requests that pass the broker in HTTP/1: the test is the client and the server, over sockets.
#include "runtime/broker/http1.hpp"
#include "tests/support/broker_talk.hpp"
#include "tests/support/catch.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <array>
#include <fcntl.h>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime::broker;
using namespace std::chrono_literals;

namespace {

namespace asio = boost::asio;

/// Both ends of a connection: the broker's does not block.
struct ends {
  unique_fd test, broker;

  ends() {
    std::array<int, 2> both{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()) == 0);
    test.reset(both[0]);
    broker.reset(both[1]);
    ::fcntl(broker.get(), F_SETFL, O_NONBLOCK);
    const timeval patience{10, 0};
    ::setsockopt(test.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
};

/// False: the other end has gone.
bool send_all(const unique_fd& to, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::send(to.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0)
      return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void say(const unique_fd& to, std::string_view text) {
  REQUIRE(send_all(to, text));
}

/// What is said while the test hears. Its thread makes no assertion: those are the test's alone.
std::future<bool> say_beside(const unique_fd& to, std::string text) {
  return std::async(std::launch::async,
                    [&to, text = std::move(text)] { return send_all(to, text); });
}

/// Until that has come, or the end.
std::string hear(const unique_fd& from, const std::string& until) {
  std::string text;
  std::array<char, 4096> some{};
  while (text.find(until) == std::string::npos) {
    const auto n = ::recv(from.get(), some.data(), some.size(), 0);
    if (n <= 0)
      return text + (n == 0 ? "<end>" : "<late>");
    text.append(some.data(), static_cast<std::size_t>(n));
  }
  return text;
}

/// A client and a server with the broker between them.
class between {
public:
  explicit between(request_handler handle = nullptr, std::chrono::milliseconds idle = 5s,
                   std::chrono::milliseconds head = 5s)
      : handle_(handle ? std::move(handle)
                       : [this](incoming& in) -> task<exchanged> { co_return co_await pass(in); }) {
    server_.emplace(io_, std::move(server.broker));
    client_.emplace(io_, std::move(client.broker));
    out_ = make_http1_outgoing(*server_);
    asio::co_spawn(
      io_,
      [this, idle, head]() -> task<void> {
        co_await serve_http1(*client_, handle_, idle, head);
        client_->cut();
        server_->cut();
      },
      asio::detached);
    thread_ = std::thread{[this] { io_.run(); }};
  }
  ~between() {
    client.test.reset();
    server.test.reset();
    thread_.join();
  }

  task<exchanged> pass(incoming& in) {
    attempt how;
    const auto done = co_await exchange(in, in.head, *out_, &how);
    if (how.client_is_gone)
      co_return exchanged{};
    if (done)
      co_return *done;
    failed = done.reason().message;
    const unsigned status = done.reason().code == errc::invalid_request ? 400 : 502;
    co_return co_await refuse(in, status, failed);
  }

  ends client, server;
  std::string failed;

private:
  asio::io_context io_;
  request_handler handle_;
  std::optional<stream> client_, server_;
  std::unique_ptr<outgoing> out_;
  std::thread thread_;
};

const std::string get = "GET /a?b HTTP/1.1\r\nhost: a.example\r\n\r\n";

} // namespace

TEST_CASE("requests and answers pass, one after the other", "[broker]") {
  between it;
  for (int i = 0; i < 3; ++i) {
    say(it.client.test, get);
    CHECK(hear(it.server.test, "\r\n\r\n") == get);
    say(it.server.test, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: 1\r\n\r\nok");
    CHECK(hear(it.client.test, "ok") == "HTTP/1.1 200 \r\nx-a: 1\r\ncontent-length: 2\r\n\r\nok");
    say(it.client.test, "POST / HTTP/1.1\r\nhost: a.example\r\ntransfer-encoding: chunked\r\n\r\n"
                        "3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n");
    CHECK(hear(it.server.test, "x-sum: 6\r\n\r\n")
            .ends_with("transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n"));
    say(it.server.test, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
    CHECK(hear(it.client.test, "ok\r\n").find("2\r\nok\r\n") != std::string::npos); // At once.
    say(it.server.test, "0\r\nX-End: 1\r\n\r\n");
    CHECK(hear(it.client.test, "\r\n\r\n") == "0\r\nx-end: 1\r\n\r\n");
  }
  INFO("an answer that ends with its connection ends so for the client");
  say(it.client.test, get);
  hear(it.server.test, "\r\n\r\n");
  say(it.server.test, "HTTP/1.1 200 OK\r\n\r\nuntil the end");
  ::shutdown(it.server.test.get(), SHUT_WR);
  CHECK(hear(it.client.test, "0\r\n\r\n").find("d\r\nuntil the end\r\n0\r\n\r\n") !=
        std::string::npos);
}

TEST_CASE("a large body passes both ways with flat memory", "[broker]") {
  between it;
  const std::string large(20 << 20, 'x');
  say(it.client.test, "PUT / HTTP/1.1\r\nhost: a.example\r\ncontent-length: " +
                        std::to_string(large.size()) + "\r\n\r\n");
  auto sender = say_beside(it.client.test, large);
  std::string there = hear(it.server.test, "\r\n\r\n");
  std::size_t size = there.size() - there.find("\r\n\r\n") - 4;
  std::string some(1 << 16, '\0');
  while (size < large.size()) {
    const auto n = ::recv(it.server.test.get(), some.data(), some.size(), 0);
    REQUIRE(n > 0);
    size += static_cast<std::size_t>(n);
  }
  CHECK(sender.get());
  CHECK(size == large.size());
  auto answering = say_beside(it.server.test, "HTTP/1.1 200 OK\r\ncontent-length: " +
                                                std::to_string(large.size()) + "\r\n\r\n" + large);
  there = hear(it.client.test, "\r\n\r\n");
  size = there.size() - there.find("\r\n\r\n") - 4;
  while (size < large.size()) {
    const auto n = ::recv(it.client.test.get(), some.data(), some.size(), 0);
    REQUIRE(n > 0);
    size += static_cast<std::size_t>(n);
  }
  CHECK(answering.get());
  CHECK(size == large.size());
}

TEST_CASE("a client waits for 100 before it sends, if the server does", "[broker]") {
  between it;
  say(it.client.test, "POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 3\r\nexpect: "
                      "100-continue\r\n\r\n");
  CHECK(hear(it.server.test, "\r\n\r\n").find("expect: 100-continue") != std::string::npos);
  say(it.server.test, "HTTP/1.1 100 Continue\r\n\r\n");
  CHECK(hear(it.client.test, "\r\n\r\n").starts_with("HTTP/1.1 100"));
  say(it.client.test, "abc");
  CHECK(hear(it.server.test, "abc") == "abc");
  say(it.server.test, "HTTP/1.1 204 No Content\r\n\r\n");
  CHECK(hear(it.client.test, "\r\n\r\n").starts_with("HTTP/1.1 204"));
}

TEST_CASE("a server that answers before it has had all ends the connection", "[broker]") {
  between it;
  say(it.client.test, "POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 1000000\r\n\r\nabc");
  hear(it.server.test, "abc");
  say(it.server.test, "HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nno!");
  CHECK(hear(it.client.test, "no!").starts_with("HTTP/1.1 413"));
  ::shutdown(it.client.test.get(), SHUT_WR);
  CHECK(hear(it.client.test, "never") == "<end>");
}

TEST_CASE("a websocket becomes a tunnel", "[broker]") {
  between it;
  say(it.client.test, "GET /chat HTTP/1.1\r\nhost: a.example\r\nconnection: Upgrade\r\nupgrade: "
                      "websocket\r\nsec-websocket-key: x\r\n\r\n");
  CHECK(hear(it.server.test, "\r\n\r\n").find("connection: upgrade\r\nupgrade: websocket") !=
        std::string::npos);
  say(it.server.test, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: "
                      "websocket\r\n\r\nearly");
  const auto head = hear(it.client.test, "early");
  CHECK(head.starts_with("HTTP/1.1 101 \r\n"));
  say(it.client.test, "to the server");
  CHECK(hear(it.server.test, "to the server") == "to the server");
  say(it.server.test, "to the client");
  CHECK(hear(it.client.test, "to the client") == "to the client");
  ::shutdown(it.client.test.get(), SHUT_WR);
  CHECK(hear(it.server.test, "never") == "<end>");
  ::shutdown(it.server.test.get(), SHUT_WR);
  CHECK(hear(it.client.test, "never") == "<end>");
}

TEST_CASE("what is no request is refused, and the connection ends", "[broker]") {
  between it;
  say(it.client.test, "POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 1\r\n"
                      "transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n");
  const auto said = hear(it.client.test, "never");
  CHECK(said.starts_with("HTTP/1.1 400 "));
  CHECK(said.find("connection: close") != std::string::npos);
  CHECK(said.ends_with("there is a length and a transfer coding\n<end>"));
}

TEST_CASE("a server that is gone, or says what is no HTTP, is 502", "[broker]") {
  const bool gone = GENERATE(true, false);
  between it;
  say(it.client.test, get);
  hear(it.server.test, "\r\n\r\n");
  if (gone)
    it.server.test.reset();
  else
    say(it.server.test, "SSH-2.0-x\r\n\r\n");
  CHECK(hear(it.client.test, "\r\n\r\n").starts_with("HTTP/1.1 502 "));
}

TEST_CASE("an answer of the broker's own leaves the connection good", "[broker]") {
  between it{[](incoming& in) -> task<exchanged> {
    response_head said;
    said.status = 403;
    said.rest = {{"x-why", "rule"}};
    co_return co_await answer(in, said, "not here");
  }};
  for (int i = 0; i < 2; ++i) {
    say(it.client.test, "POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 5\r\n\r\nhello");
    CHECK(hear(it.client.test, "not here").starts_with("HTTP/1.1 403 \r\nx-why: rule\r\n"));
  }
  say(it.client.test, "HEAD / HTTP/1.1\r\nhost: a.example\r\n\r\n");
  const auto head = hear(it.client.test, "\r\n\r\n");
  CHECK(head.find("content-length: 8") != std::string::npos);
  CHECK(head.substr(head.find("\r\n\r\n")) == "\r\n\r\n");
}

TEST_CASE("a client of HTTP/1.0 gets no chunks", "[broker]") {
  between it;
  say(it.client.test, "GET / HTTP/1.0\r\nhost: a.example\r\n\r\n");
  hear(it.server.test, "\r\n\r\n");
  say(it.server.test, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
  const auto said = hear(it.client.test, "never");
  CHECK(said.find("transfer-encoding") == std::string::npos);
  CHECK(said.ends_with("\r\n\r\nok<end>"));
}

TEST_CASE("a client that goes ends its request at the server", "[broker]") {
  const bool half = GENERATE(false, true);
  const std::string with_body =
    "POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 3\r\n\r\nabc";
  const std::string without_end =
    "POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 9\r\n\r\nabc";
  for (const auto& text : {get, with_body, without_end}) {
    between it;
    say(it.client.test, text);
    hear(it.server.test, text == get ? "\r\n\r\n" : "abc");
    if (half)
      ::shutdown(it.client.test.get(), SHUT_WR);
    else
      it.client.test.reset();
    CHECK(hear(it.server.test, "never") == "<end>");
  }
  // Also in the midst of an answer.
  between it;
  say(it.client.test, get);
  hear(it.server.test, "\r\n\r\n");
  say(it.server.test, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc");
  hear(it.client.test, "abc");
  it.client.test.reset();
  CHECK(hear(it.server.test, "never") == "<end>");
}

TEST_CASE("requests that come early are read one after the other", "[broker]") {
  between it;
  const std::string more = "GET /more HTTP/1.1\r\nhost: a.example\r\n\r\n";
  const std::string padded =
    "GET /padded HTTP/1.1\r\nhost: a.example\r\nx: " + std::string(40'000, 'x') + "\r\n\r\n";
  auto sender = say_beside(it.client.test, get + more + padded + padded + padded);
  for (const auto& path : {"/a?b", "/more", "/padded", "/padded", "/padded"}) {
    CHECK(hear(it.server.test, "\r\n\r\n").starts_with(std::string{"GET "} + path + " "));
    say(it.server.test, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    CHECK(hear(it.client.test, "ok") == "HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\nok");
  }
  CHECK(sender.get());
}

TEST_CASE("an answer before the end of its request wakes the task that reads that", "[broker]") {
  between it;
  say(it.client.test, "POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 1000000\r\n\r\nabc");
  hear(it.server.test, "abc");
  say(it.server.test, "HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nno!");
  CHECK(hear(it.client.test, "never").ends_with("no!<end>")); // The client does nothing.
}

TEST_CASE("each byte of a tunnel passes once, also what came early", "[broker]") {
  between it;
  say(it.client.test, "GET /chat HTTP/1.1\r\nhost: a.example\r\nconnection: Upgrade\r\nupgrade: "
                      "websocket\r\n\r\nfirst words");
  CHECK(hear(it.server.test, "\r\n\r\n").ends_with("upgrade: websocket\r\n\r\n"));
  say(it.server.test, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: "
                      "websocket\r\n\r\nfirst answer");
  CHECK(hear(it.client.test, "answer") ==
        "HTTP/1.1 101 \r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nfirst answer");
  CHECK(hear(it.server.test, "words") == "first words");
  ::shutdown(it.client.test.get(), SHUT_WR);
  CHECK(hear(it.server.test, "never") == "<end>");
}

TEST_CASE("a protocol that was not asked for is not switched to", "[broker]") {
  between it;
  say(it.client.test, "GET / HTTP/1.1\r\nhost: a.example\r\nconnection: upgrade, http2-settings\r\n"
                      "upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n");
  CHECK(hear(it.server.test, "\r\n\r\n") == "GET / HTTP/1.1\r\nhost: a.example\r\n\r\n");
  const bool sockets = GENERATE(false, true);
  say(it.server.test, std::string{"HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: "} +
                        (sockets ? "websocket" : "h2c") + "\r\n\r\n");
  CHECK(hear(it.client.test, "\r\n\r\n").starts_with("HTTP/1.1 502 "));
}

TEST_CASE("what a server says before it answers has a ceiling, and so has its head", "[broker]") {
  const bool interim = GENERATE(true, false);
  between it;
  say(it.client.test, get);
  hear(it.server.test, "\r\n\r\n");
  std::string text;
  for (int i = 0; i < 100 && interim; ++i)
    text += "HTTP/1.1 100 Continue\r\n\r\n";
  if (!interim)
    text = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 2000 && !interim; ++i)
    text += "x-header-" + std::to_string(i) + ": " + std::string(90, 'x') + "\r\n";
  std::thread sender{[&] {
    // The broker ends the connection in the midst of it.
    for (std::string_view left = text; !left.empty();) {
      const auto n = ::send(it.server.test.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (n <= 0)
        return;
      left.remove_prefix(static_cast<std::size_t>(n));
    }
  }};
  const auto said = hear(it.client.test, "HTTP/1.1 502");
  CHECK(said.find("HTTP/1.1 502") != std::string::npos);
  std::size_t count = 0;
  for (auto at = said.find("HTTP/1.1 100"); at != std::string::npos;
       at = said.find("HTTP/1.1 100", at + 1))
    ++count;
  CHECK(count == (interim ? most_interim_answers : 0));
  sender.join();
}

TEST_CASE("a client whose head takes too long, or that says nothing, is let go of", "[broker]") {
  const bool slow = GENERATE(false, true);
  const std::chrono::milliseconds soon = 50ms, late = 1h;
  between it{nullptr, slow ? late : soon, slow ? soon : late};
  if (slow)
    say(it.client.test, "GET / HTTP/1.1\r\nhost: a.ex");
  CHECK(hear(it.client.test, "never") == "<end>");
}

TEST_CASE("a body that is none is the client's error", "[broker]") {
  between it;
  say(it.client.test, "POST / HTTP/1.1\r\nhost: a.example\r\ntransfer-encoding: chunked\r\n\r\n"
                      "3\r\nabc\r\nx\r\n");
  CHECK(hear(it.client.test, "\r\n\r\n").starts_with("HTTP/1.1 400 "));
  CHECK(hear(it.server.test, "never").ends_with("3\r\nabc\r\n<end>"));
}

namespace {

/// The broker's side towards a server that the test is.
struct towards_server {
  towards_server() {
    auto both = insula::test::pair_of_sockets();
    server.emplace(io, std::move(both[0]));
    way.emplace(io, std::move(both[1]));
    out = make_http1_outgoing(*way);
  }

  asio::io_context io{1};
  std::optional<stream> server, way;
  std::unique_ptr<outgoing> out;
};

} // namespace

TEST_CASE("a connection is used again only if nothing of it is left", "[broker]") {
  const std::string behind = GENERATE("", "HTTP/1.1 200 OK\r\n");
  towards_server it;
  REQUIRE(insula::test::run_until_done(it.io, [&]() -> task<void> {
    const auto asked = co_await it.out->begin(insula::test::head_of("GET", "/"));
    CHECK(asked);
    const auto ended = co_await it.out->end({});
    CHECK(ended);
    CHECK_FALSE(it.out->was_answered());
    const auto text = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok" + behind;
    const auto sent = co_await it.server->write(text);
    CHECK(sent);
    const auto said = co_await it.out->answer();
    CHECK(said);
    CHECK(it.out->was_answered());
    for (;;) {
      const auto some = co_await it.out->body();
      REQUIRE(some);
      if (!*some)
        break;
    }
    CHECK(it.out->can_be_used_again() == behind.empty());
    CHECK(it.way->is_quiet());
    const auto more = co_await it.server->write("x");
    CHECK(more);
    CHECK_FALSE(it.way->is_quiet());
  }));
}

TEST_CASE("a stream whose other end reads nothing is cut after a time", "[broker]") {
  towards_server it;
  it.way->longest_stall(20ms);
  REQUIRE(insula::test::run_until_done(it.io, [&]() -> task<void> {
    const std::string large(16 << 20, 'x');
    const auto no = co_await it.way->write(large);
    CHECK_FALSE(no);
  }));
}

TEST_CASE("a kept connection that has ended is not quiet", "[broker]") {
  towards_server it;
  CHECK(it.way->is_quiet());
  it.server->cut();
  CHECK_FALSE(it.way->is_quiet());
}

#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/http/socket_door.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"

#include <random>
#include <sys/socket.h>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

TEST_CASE("a WebSocket carries text and bytes both ways, one frame for each message",
          "[http][web_socket]") {
  socket_door door;
  web_socket_client one{door.port(), "/"};
  CHECK(one.head().status == 101);
  CHECK(one.head().fields.at("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  CHECK(one.head().fields.count("sec-websocket-extensions") == 0);
  const auto held = door.echo();
  one.send(frame_kind::text, "h\xc3\xa4llo");
  auto got = one.next();
  CHECK(got.kind == frame_kind::text);
  CHECK(got.bytes == "h\xc3\xa4llo");
  for (const std::size_t size : {0u, 1u, 125u, 126u, 65'535u, 65'536u, 1'000'000u, 4'194'304u}) {
    std::string bytes(size, '\xff');
    one.send(frame_kind::binary, bytes);
    got = one.next();
    CHECK(got.kind == frame_kind::binary);
    CHECK(got.final);
    CHECK((got.bytes == bytes));
  }
}

TEST_CASE("fragments become one message, and a ping between them is answered",
          "[http][web_socket]") {
  socket_door door;
  web_socket_client one{door.port(), "/"};
  const auto held = door.echo();
  one.send(frame_kind::text, "\xe2\x82", false);
  one.send(frame_kind::ping, "are you there");
  one.send(frame_kind::continuation, "", false);
  one.send(frame_kind::continuation, "\xac!");
  auto got = one.next();
  CHECK(got.kind == frame_kind::pong);
  CHECK(got.bytes == "are you there");
  got = one.next();
  CHECK(got.kind == frame_kind::text);
  CHECK(got.bytes == "\xe2\x82\xac!");
}

TEST_CASE("what breaks the protocol is closed with the code for it", "[http][web_socket]") {
  socket_door door;
  const auto code_after = [&](std::string_view bytes) {
    web_socket_client one{door.port(), "/"};
    const auto held = door.echo();
    one.raw().send(bytes);
    const auto ending = one.to_end();
    door.gone.next(door.patience);
    return ending.code;
  };
  const std::string too_much(limits::terminal_input_bytes + 1, 'x');
  CHECK(code_after(encode_frame(frame_kind::binary, "x", true, false)) == 1002); // Not masked.
  CHECK(code_after(encode_frame(static_cast<frame_kind>(3), "x")) == 1002);
  CHECK(code_after(encode_frame(frame_kind::continuation, "x")) == 1002);
  CHECK(code_after("\xc1\x81____x") == 1002); // A reserved bit.
  CHECK(code_after(encode_frame(frame_kind::ping, std::string(126, 'x'))) == 1002);
  CHECK(code_after(encode_frame(frame_kind::ping, "x", false)) == 1002);
  CHECK(code_after(encode_frame(frame_kind::text, "\xff")) == 1007);
  CHECK(code_after(encode_frame(frame_kind::text, "\xe2\x82")) == 1007);
  CHECK(code_after(encode_frame(frame_kind::binary, too_much.substr(1), false) +
                   encode_frame(frame_kind::continuation, "x")) == 1009);
  CHECK(code_after(encode_frame(frame_kind::binary, too_much).substr(0, 20)) == 1009);
  // Three gigabytes, it says.
  CHECK(code_after(std::string{"\x82\xff\0\0\0\0\xc0\0\0\0____", 14}) == 1009);
  CHECK(code_after(encode_frame(frame_kind::close, std::string{"\x03\xe8", 2})) == 1000);
  CHECK(code_after(encode_frame(frame_kind::close, std::string{"\x0f\xa0", 2})) == 4000);
}

TEST_CASE("bytes of any kind leave the others alone", "[http][web_socket]") {
  socket_door door;
  web_socket_client other{door.port(), "/"};
  const auto held = door.echo();
  std::mt19937 random{7};
  for (int round = 0; round < 200; ++round) {
    std::string bytes(random() % 300, '\0');
    for (auto& each : bytes)
      each = static_cast<char>(random());
    web_socket_client one{door.port(), "/"};
    const auto with = door.echo();
    one.raw().send(bytes);
    one.raw().close();
    door.gone.next(door.patience);
  }
  other.type("still here");
  CHECK(other.next().bytes == "still here");
}

TEST_CASE("frames that come in one piece with the request are not lost", "[http][web_socket]") {
  socket_door door;
  const auto first = encode_frame(frame_kind::binary, "early") +
                     encode_frame(frame_kind::binary, std::string(20'000, 'b'));
  SECTION("behind it") {
    web_socket_client one{door.port(), "/", {}, false, first};
    const auto held = door.echo();
    CHECK(one.next().bytes == "early");
    CHECK(one.next().bytes == std::string(20'000, 'b'));
  }
  SECTION("with the end of its header alone") {
    const auto text = upgrade_request("/");
    for (std::size_t tail = 0; tail < 6; ++tail) {
      client raw{door.port()};
      raw.send(text.substr(0, text.size() - tail));
      raw.send(text.substr(text.size() - tail) + encode_frame(frame_kind::binary, "early"));
      const auto held = door.echo();
      CHECK(raw.read_until("\r\n\r\n").starts_with("HTTP/1.1 101"));
      CHECK(raw.read(7) == "\x82\x05"
                           "early");
    }
  }
  SECTION("behind a request before it, whose client was watched") {
    client raw{door.port()};
    raw.send(request("GET", socket_door::slow));
    const auto slow = door.streams.next(door.patience);
    slow->on_gone([] {});
    CHECK(raw.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
    raw.send(upgrade_request("/") + first);
    slow->finish({});
    CHECK(raw.chunk().empty());
    const auto held = door.echo();
    CHECK(raw.read_until("\r\n\r\n").starts_with("HTTP/1.1 101"));
    CHECK(raw.read(7) == "\x82\x05"
                         "early");
  }
}

TEST_CASE("a client that does not read is cut, and holds up nobody", "[http][web_socket]") {
  http::front_door_options options;
  options.time.write = 500ms;
  socket_door door{options};
  web_socket_client stalled{door.port(), "/"};
  const int small = 4096;
  ::setsockopt(stalled.raw().fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  const auto to_stalled = door.listen();
  web_socket_client other{door.port(), "/"};
  const auto to_other = door.echo();
  events<bool> taken;
  to_stalled->send({false, std::string(64u << 20, 'x')}, [&](bool all) { taken.tell(all); });
  other.type("quick");
  CHECK(other.next().bytes == "quick");
  CHECK_FALSE(taken.next(door.patience));
  door.gone.next(door.patience);
}

TEST_CASE("a client that is waited for may stand still", "[http][web_socket]") {
  http::front_door_options options;
  options.time.write = options.time.ping = 300ms;
  socket_door door{options};
  constexpr std::size_t all = 64u << 20; // More than the kernel keeps.
  web_socket_client one{door.port(), "/"};
  const auto held = door.listen();
  held->wait_for_client(door.patience);
  events<bool> taken;
  held->send({false, std::string(all, 'x')}, [&](bool whole) { taken.tell(whole); });
  for (int i = 0; i < 3; ++i) { // Others are cut meanwhile.
    web_socket_client other{door.port(), "/"};
    const auto to_other = door.listen();
    to_other->send({false, std::string(64u << 20, 'x')});
    door.gone.next(door.patience);
  }
  CHECK(taken.empty());
  held->close(http::close_reason::normal);
  CHECK(one.next().bytes.size() == all);
  CHECK(taken.next(door.patience));
  CHECK(one.next().code == 1000);
}

TEST_CASE("a client that sends what nobody takes waits", "[http][web_socket]") {
  socket_door door;
  web_socket_client one{door.port(), "/"};
  const auto held = door.opened.next(door.patience);
  events<http::web_socket_message> came;
  for (int i = 0; i < 3; ++i)
    one.type("message " + std::to_string(i));
  for (int i = 0; i < 3; ++i) {
    held->receive([&](http::web_socket_message what) { came.tell(std::move(what)); });
    CHECK(came.next(door.patience).bytes == "message " + std::to_string(i));
    CHECK(came.empty());
  }
}

TEST_CASE("pings find the client that is gone, and keep the others", "[http][web_socket]") {
  http::front_door_options options;
  options.time.ping = 3s;
  socket_door door{options};
  web_socket_client alive{door.port(), "/"};
  const auto to_alive = door.echo();
  // Whoever answers outlives the one who does not.
  std::jthread reader{[&] { CHECK(alive.next().kind == frame_kind::text); }};
  web_socket_client dead{door.port(), "/"};
  dead.mute = true;
  const auto to_dead = door.listen();
  CHECK(dead.next().kind == frame_kind::ping);
  door.gone.next(door.patience);
  CHECK(door.gone.empty());
  to_alive->send({true, "over"}, {});
  reader.join();
}

TEST_CASE("a client that is gone is found while nobody reads from it", "[http][web_socket]") {
  http::front_door_options options;
  options.time.ping = 300ms;
  socket_door door{options};
  web_socket_client one{door.port(), "/"};
  const auto held = door.opened.next(door.patience);
  const linger now{1, 0}; // It ends with a reset.
  ::setsockopt(one.raw().fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  one.raw().close();
  door.gone.next(door.patience);
}

TEST_CASE("a server that stops tells its WebSockets, and waits for them", "[http][web_socket]") {
  socket_door door;
  web_socket_client one{door.port(), "/"};
  const auto held = door.echo();
  web_socket_client second{door.port(), "/"};
  const auto also = door.echo();
  std::jthread stopping{[&] { door.stop(30s); }};
  CHECK(one.to_end().code == 1001);
  CHECK(second.to_end().code == 1001);
  one.raw().close();
  second.raw().close();
  stopping.join();
  CHECK(eventually([&] { return door.counts->web_sockets.value() == 0; }));
  CHECK(door.counts->connections.value() == 0);
}

TEST_CASE("whoever drops a WebSocket cuts it, and whoever closes it says why",
          "[http][web_socket]") {
  socket_door door;
  {
    web_socket_client one{door.port(), "/"};
    { const auto dropped = door.listen(); }
    CHECK(one.to_end().code == 1006);
  }
  {
    web_socket_client one{door.port(), "/"};
    {
      const auto closed = door.listen();
      closed->send({true, "last words"}, {});
      closed->close(http::close_reason::try_again_later, "too slow");
      events<bool> sent;
      closed->send({true, "too late"}, [&](bool taken) { sent.tell(taken); });
      CHECK_FALSE(sent.next(door.patience));
    }
    CHECK(one.next().bytes == "last words");
    const auto end = one.next();
    CHECK(end.code == 1013);
    CHECK(end.bytes == "too slow");
    one.send(frame_kind::close, std::string{"\x03\xf5", 2});
    CHECK(one.raw().at_end());
  }
}

TEST_CASE("a client that does not answer a close is not waited for", "[http][web_socket]") {
  http::front_door_options options;
  options.time.linger = 300ms;
  socket_door door{options};
  web_socket_client one{door.port(), "/"};
  const auto held = door.listen();
  held->close(http::close_reason::normal, {});
  CHECK(one.next().code == 1000);
  CHECK(one.raw().at_end());
}

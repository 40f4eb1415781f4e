// What hostile clients and servers write in frames of HTTP/2, byte by byte.
#include "runtime/broker/broker.hpp"
#include "runtime/broker/condition.hpp"
#include "runtime/broker/http2.hpp"
#include "tests/support/broker_talk.hpp"
#include "tests/support/catch.hpp"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace insula;
using namespace insula::runtime::broker;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

namespace asio = boost::asio;

constexpr std::uint8_t ends_stream = NGHTTP2_FLAG_END_STREAM,
                       ends_headers = NGHTTP2_FLAG_END_HEADERS;

std::string big_endian(std::uint32_t number, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i)
    text += static_cast<char>(number >> (8 * i));
  return text;
}

std::string frame_of(int type, std::uint8_t flags, std::int32_t id, const std::string& payload) {
  return big_endian(static_cast<std::uint32_t>(payload.size()), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + big_endian(static_cast<std::uint32_t>(id), 4) + payload;
}

std::string hpack_text(const std::string& text) {
  std::string made;
  if (text.size() < 127) {
    made = static_cast<char>(text.size());
  } else {
    made = "\x7f";
    auto rest = text.size() - 127;
    for (; rest >= 128; rest /= 128)
      made += static_cast<char>(rest % 128 + 128);
    made += static_cast<char>(rest);
  }
  return made + text;
}
std::string hpack_field(const std::string& name, const std::string& value, char kind = '\0') {
  return kind + hpack_text(name) + hpack_text(value);
}

std::string block_of(const std::string& method, const fields& rest = {},
                     const std::string& path = "/") {
  auto block = hpack_field(":method", method) + hpack_field(":scheme", "https") +
               hpack_field(":authority", "a.example") + hpack_field(":path", path);
  for (const auto& [name, value] : rest)
    block += hpack_field(name, value);
  return block;
}

std::string headers_of(std::int32_t id, const std::string& block,
                       std::uint8_t flags = ends_stream | ends_headers) {
  return frame_of(NGHTTP2_HEADERS, flags, id, block);
}

std::string reset_of(std::int32_t id) {
  return frame_of(NGHTTP2_RST_STREAM, 0, id, big_endian(NGHTTP2_CANCEL, 4));
}

struct heard_frame {
  int type = 0;
  std::uint8_t flags = 0;
  std::int32_t id = 0;
  std::string payload;

  std::uint32_t number(std::size_t at) const {
    std::uint32_t value = 0;
    for (std::size_t i = at; i < at + 4; ++i)
      value = value << 8 | static_cast<std::uint8_t>(payload.at(i));
    return value;
  }
};

/// One end of a connection whose frames the test writes.
class raw_end {
public:
  raw_end(asio::io_context& io, unique_fd socket)
      : way(io, std::move(socket)) {
    nghttp2_hd_inflate_new(&inflater_);
  }
  ~raw_end() { nghttp2_hd_inflate_del(inflater_); }
  raw_end(const raw_end&) = delete;
  raw_end& operator=(const raw_end&) = delete;

  task<bool> say(std::string bytes) {
    const auto ok = co_await way.write(bytes);
    co_return static_cast<bool>(ok);
  }
  /// What a client says first of all.
  task<void> hear_magic() {
    const bool came = co_await fill(NGHTTP2_CLIENT_MAGIC_LEN);
    CHECK(came);
    left_.erase(0, NGHTTP2_CLIENT_MAGIC_LEN);
  }
  /// None: the connection has ended.
  task<std::optional<heard_frame>> next() {
    const bool has_head = co_await fill(9);
    if (!has_head)
      co_return std::nullopt;
    const auto at = [this](std::size_t i) { return static_cast<std::uint8_t>(left_[i]); };
    const std::size_t size = at(0) << 16 | at(1) << 8 | at(2);
    heard_frame made{
      at(3), at(4), static_cast<std::int32_t>(at(5) << 24 | at(6) << 16 | at(7) << 8 | at(8)), {}};
    const bool whole = co_await fill(9 + size);
    if (!whole)
      co_return std::nullopt;
    made.payload = left_.substr(9, size);
    left_.erase(0, 9 + size);
    if (made.type == NGHTTP2_HEADERS)
      status[made.id] = status_of(made.payload);
    co_return made;
  }
  /// The first frame of that type on that stream. None: the connection ended before.
  task<std::optional<heard_frame>> next(int type, std::int32_t id) {
    for (;;) {
      auto one = co_await next();
      if (!one)
        co_return one;
      if (one->type == type && one->id == id)
        co_return one;
    }
  }

  stream way;
  std::map<std::int32_t, std::string> status; ///< Of answers.

private:
  task<bool> fill(std::size_t bytes) {
    std::string room(64u << 10, '\0');
    while (left_.size() < bytes) {
      const auto size = co_await way.read(room.data(), room.size());
      if (!size)
        co_return false;
      if (*size == 0)
        co_return false;
      left_.append(room.data(), *size);
    }
    co_return true;
  }
  std::string status_of(const std::string& block) {
    std::string found;
    auto at = reinterpret_cast<const std::uint8_t*>(block.data());
    std::size_t left = block.size();
    for (int flags = 0; (flags & NGHTTP2_HD_INFLATE_FINAL) == 0;) {
      nghttp2_nv field{};
      flags = 0;
      const auto used = nghttp2_hd_inflate_hd2(inflater_, &field, &flags, at, left, 1);
      REQUIRE(used >= 0);
      at += used;
      left -= static_cast<std::size_t>(used);
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0 && field.namelen == 7)
        found.assign(reinterpret_cast<const char*>(field.value), field.valuelen);
    }
    nghttp2_hd_inflate_end_headers(inflater_);
    return found;
  }

  nghttp2_hd_inflater* inflater_ = nullptr;
  std::string left_;
};

/// The broker's side towards a client, and a client that the test is.
class attacked {
public:
  explicit attacked(request_handler handle)
      : handle_(std::move(handle)) {
    auto both = pair_of_sockets();
    client.emplace(io, std::move(both[0]));
    server_.emplace(io, std::move(both[1]));
    asio::co_spawn(io, serve_http2(*server_, handle_, 5s),
                   [this](std::exception_ptr) { over = true; });
  }
  ~attacked() {
    client->way.cut();
    server_->cut();
    io.restart();
    io.run_for(5s);
    CHECK(over);
  }

  void run(std::function<task<void>()> work) {
    REQUIRE(run_until_done(io, [&]() -> task<void> {
      const bool ok = co_await client->say(std::string{NGHTTP2_CLIENT_MAGIC} +
                                           frame_of(NGHTTP2_SETTINGS, 0, 0, ""));
      CHECK(ok);
      co_await work();
    }));
  }
  /// The error with which the connection ends. None: it has ended without a word.
  task<std::optional<std::uint32_t>> last_words() {
    const auto words = co_await client->next(NGHTTP2_GOAWAY, 0);
    if (!words)
      co_return std::nullopt;
    co_return words->number(4);
  }

  asio::io_context io{1};
  std::optional<raw_end> client;
  bool over = false;

private:
  request_handler handle_;
  std::optional<stream> server_;
};

task<exchanged> say_ok(incoming& in) {
  response_head said;
  said.status = 200;
  co_return co_await answer(in, said, "ok");
}

} // namespace

TEST_CASE("tasks of requests that were reset count, and many resets end the connection",
          "[broker]") {
  std::size_t running = 0, most = 0;
  bool released = false;
  std::optional<condition> changed;
  attacked it{[&](incoming&) -> task<exchanged> {
    most = std::max(most, ++running);
    while (!released)
      co_await changed->wait();
    --running;
    co_return exchanged{};
  }};
  changed.emplace(it.io.get_executor());
  it.run([&]() -> task<void> {
    for (std::int32_t i = 0; i < 1000; ++i) {
      const auto id = 2 * i + 1;
      const bool ok = co_await it.client->say(headers_of(id, block_of("GET")) + reset_of(id));
      if (!ok)
        break;
    }
    const auto why = co_await it.last_words();
    CHECK(why == NGHTTP2_ENHANCE_YOUR_CALM);
    CHECK(most > 0);
    CHECK(most <= 2 * http2_streams);
    released = true;
    changed->tell();
    const bool ended = co_await until(it.io, [&] { return it.over && running == 0; });
    CHECK(ended);
  });
}

TEST_CASE("a client can have its own requests reset only so often", "[broker]") {
  attacked it{say_ok};
  const fields five{{"content-length", "5"}};
  it.run([&]() -> task<void> {
    // It has a length, and no body.
    for (std::int32_t i = 0; i < 1000; ++i) {
      const bool ok = co_await it.client->say(headers_of(2 * i + 1, block_of("POST", five)));
      if (!ok)
        break;
    }
    const auto why = co_await it.last_words();
    CHECK(why == NGHTTP2_ENHANCE_YOUR_CALM);
  });
}

TEST_CASE("streams that are reset when they are over do not count", "[broker]") {
  attacked it{say_ok};
  it.run([&]() -> task<void> {
    for (std::int32_t i = 0; i < 2000; ++i) {
      const auto id = 2 * i + 1;
      co_await it.client->say(headers_of(id, block_of("GET")));
      std::optional<heard_frame> last;
      do
        last = co_await it.client->next();
      while (last && (last->id != id || (last->flags & ends_stream) == 0));
      REQUIRE(last);
      CHECK(it.client->status[id] == "200");
      co_await it.client->say(reset_of(id));
    }
  });
}

TEST_CASE("a window that grows by nothing is an error", "[broker]") {
  const std::int32_t id = GENERATE(0, 1);
  attacked it{say_ok};
  it.run([&]() -> task<void> {
    co_await it.client->say(headers_of(1, block_of("POST"), ends_headers) +
                            frame_of(NGHTTP2_WINDOW_UPDATE, 0, id, big_endian(0, 4)));
    const auto why = co_await it.last_words();
    CHECK(why == NGHTTP2_PROTOCOL_ERROR);
  });
}

TEST_CASE("a head in many frames ends the connection", "[broker]") {
  int asked = 0;
  attacked it{[&](incoming& in) -> task<exchanged> {
    ++asked;
    co_return co_await say_ok(in);
  }};
  it.run([&]() -> task<void> {
    co_await it.client->say(headers_of(1, block_of("GET"), ends_stream));
    for (int i = 0; i < 100; ++i) {
      const bool ok =
        co_await it.client->say(frame_of(NGHTTP2_CONTINUATION, 0, 1, hpack_field("x-more", "1")));
      if (!ok)
        break;
    }
    for (bool more = true; more;) {
      const auto frame = co_await it.client->next();
      more = frame.has_value();
    }
    CHECK(asked == 0);
  });
}

TEST_CASE("frames that ask for an answer end the connection of a client that does not read",
          "[broker]") {
  const bool settings = GENERATE(false, true);
  attacked it{say_ok};
  it.run([&]() -> task<void> {
    std::string many;
    for (int i = 0; i < 100; ++i)
      many += settings ? frame_of(NGHTTP2_SETTINGS, 0, 0, "")
                       : frame_of(NGHTTP2_PING, 0, 0, std::string(8, 'x'));
    bool ok = true;
    for (int i = 0; i < 10'000 && ok; ++i)
      ok = co_await it.client->say(many);
    CHECK_FALSE(ok);
  });
}

TEST_CASE("requests that are refused end the connection of a client that does not read",
          "[broker]") {
  attacked it{[](incoming& in) -> task<exchanged> {
    const auto some = co_await in.body();
    static_cast<void>(some);
    co_return exchanged{};
  }};
  it.run([&]() -> task<void> {
    bool ok = true;
    for (std::int32_t i = 0; i < 1'000'000 && ok; ++i)
      ok = co_await it.client->say(headers_of(2 * i + 1, block_of("POST"), ends_headers));
    CHECK_FALSE(ok);
  });
}

TEST_CASE("a small head that becomes a large one is refused, and a huge one ends the connection",
          "[broker]") {
  int asked = 0;
  attacked it{[&](incoming& in) -> task<exchanged> {
    ++asked;
    co_return co_await say_ok(in);
  }};
  it.run([&]() -> task<void> {
    // A field of 4,000 bytes is kept by both sides, and each byte more says it again.
    const auto large = hpack_field("x", std::string(4000, 'y'), '\x40');
    co_await it.client->say(headers_of(1, block_of("GET") + large));
    co_await it.client->next(NGHTTP2_HEADERS, 1);
    CHECK(it.client->status[1] == "200");
    co_await it.client->say(headers_of(3, block_of("GET") + std::string(20, '\xbe')));
    co_await it.client->next(NGHTTP2_HEADERS, 3);
    CHECK(it.client->status[3] == "431");
    co_await it.client->say(headers_of(5, block_of("GET") + std::string(10'000, '\xbe')));
    const auto why = co_await it.last_words();
    CHECK(why == NGHTTP2_ENHANCE_YOUR_CALM);
    CHECK(asked == 1);
  });
}

TEST_CASE("HTTP/2 has no CONNECT, no TRACE, no fragments and no second host", "[broker]") {
  int asked = 0;
  attacked it{[&](incoming& in) -> task<exchanged> {
    ++asked;
    co_return co_await say_ok(in);
  }};
  it.run([&]() -> task<void> {
    co_await it.client->say(
      headers_of(1, hpack_field(":method", "CONNECT") + hpack_field(":authority", "a.example:443"),
                 ends_headers));
    co_await it.client->next(NGHTTP2_HEADERS, 1);
    CHECK(it.client->status[1] == "405");
    std::int32_t id = 1;
    for (const std::string method : {"TRACE", "trace", "Connect"}) {
      co_await it.client->say(headers_of(id += 2, block_of(method)));
      co_await it.client->next(NGHTTP2_HEADERS, id);
      CHECK(it.client->status[id] == "405");
    }
    co_await it.client->say(headers_of(id += 2, block_of("GET", {}, "/a#b")));
    co_await it.client->next(NGHTTP2_HEADERS, id);
    CHECK(it.client->status[id] == "400");
    // The way of websockets in HTTP/2, which nobody has offered.
    auto block = hpack_field(":method", "CONNECT") + hpack_field(":protocol", "websocket") +
                 hpack_field(":scheme", "https") + hpack_field(":authority", "a.example") +
                 hpack_field(":path", "/");
    co_await it.client->say(headers_of(id += 2, block, ends_headers));
    const auto reset = co_await it.client->next(NGHTTP2_RST_STREAM, id);
    CHECK(reset);
    const auto block_for_two = block_of("GET") + hpack_field("host", "b.example");
    co_await it.client->say(headers_of(id += 2, block_for_two));
    const auto two = co_await it.client->next(NGHTTP2_RST_STREAM, id);
    CHECK(two);
    for (const std::string path : {"a", "/a b", "*", "https://a.example/"}) {
      co_await it.client->say(headers_of(id += 2, block_of("GET", {}, path)));
      const auto no = co_await it.client->next(NGHTTP2_RST_STREAM, id);
      CHECK(no);
    }
    CHECK(asked == 0);
  });
}

TEST_CASE("a length in HTTP/2 is said once, and is that of the body", "[broker]") {
  std::vector<std::optional<std::uint64_t>> lengths;
  std::string bodies;
  attacked it{[&](incoming& in) -> task<exchanged> {
    lengths.push_back(in.head.body_bytes);
    for (;;) {
      const auto some = co_await in.body();
      if (!some) {
        bodies += "!";
        co_return exchanged{};
      }
      if (!*some)
        break;
      bodies += **some;
    }
    bodies += ".";
    co_return co_await say_ok(in);
  }};
  const fields five{{"content-length", "5"}};
  const std::vector<fields> bad{{{"content-length", "5"}, {"content-length", "5"}},
                                {{"content-length", "5"}, {"content-length", "6"}},
                                {{"content-length", "5, 5"}},
                                {{"content-length", "-1"}},
                                {{"transfer-encoding", "chunked"}},
                                {{"connection", "x"}}};
  it.run([&]() -> task<void> {
    const auto data = [](std::int32_t id, const std::string& text) {
      return frame_of(NGHTTP2_DATA, ends_stream, id, text);
    };
    // The body comes together with its head, before anybody has looked at that.
    co_await it.client->say(headers_of(1, block_of("POST", five), ends_headers) + data(1, "hello"));
    co_await it.client->next(NGHTTP2_HEADERS, 1);
    co_await it.client->say(headers_of(3, block_of("POST"), ends_headers) + data(3, "again"));
    co_await it.client->next(NGHTTP2_HEADERS, 3);
    CHECK(lengths == std::vector<std::optional<std::uint64_t>>{5, std::nullopt});
    CHECK(bodies == "hello.again.");
    co_await it.client->say(headers_of(5, block_of("POST", five), ends_headers) + data(5, "hell"));
    const auto shorter = co_await it.client->next(NGHTTP2_RST_STREAM, 5);
    CHECK(shorter);
    co_await it.client->say(headers_of(7, block_of("POST", five), ends_headers) +
                            data(7, "hello!"));
    const auto longer = co_await it.client->next(NGHTTP2_RST_STREAM, 7);
    CHECK(longer);
    CHECK(bodies.find("hell.") == std::string::npos);
    CHECK(bodies.find("hello!.") == std::string::npos);
    const auto before = lengths.size();
    std::int32_t id = 7;
    for (const auto& both : bad) {
      co_await it.client->say(headers_of(id += 2, block_of("POST", both), ends_headers));
      const auto no = co_await it.client->next(NGHTTP2_RST_STREAM, id);
      CHECK(no);
    }
    CHECK(lengths.size() == before);
  });
}

TEST_CASE("an answer goes out whole before the rest of its request is refused", "[broker]") {
  const std::string large(300'000, 'x');
  attacked it{[&](incoming& in) -> task<exchanged> {
    response_head said;
    said.status = 403;
    co_return co_await answer(in, said, large);
  }};
  it.run([&]() -> task<void> {
    const auto window =
      big_endian(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 2) + big_endian(1u << 20, 4);
    co_await it.client->say(frame_of(NGHTTP2_SETTINGS, 0, 0, window) +
                            frame_of(NGHTTP2_WINDOW_UPDATE, 0, 0, big_endian(1u << 20, 4)) +
                            headers_of(1, block_of("POST"), ends_headers));
    std::size_t size = 0;
    bool ended = false;
    for (;;) {
      const auto frame = co_await it.client->next();
      REQUIRE(frame);
      if (frame->id != 1)
        continue;
      if (frame->type == NGHTTP2_DATA) {
        size += frame->payload.size();
        ended = (frame->flags & ends_stream) != 0;
        // As much as it may, and it would have more.
        for (std::size_t sent = 0; ended && sent < http2_window_bytes; sent += 16u << 10)
          co_await it.client->say(frame_of(NGHTTP2_DATA, 0, 1, std::string(16u << 10, 'y')));
      }
      if (frame->type != NGHTTP2_RST_STREAM)
        continue;
      CHECK(frame->number(0) == NGHTTP2_NO_ERROR);
      break;
    }
    CHECK(ended);
    CHECK(size == large.size());
    CHECK(it.client->status[1] == "403");
  });
}

TEST_CASE("a small rest of a request that was answered may come, of a few requests", "[broker]") {
  const bool comes = GENERATE(true, false);
  attacked it{say_ok};
  it.run([&]() -> task<void> {
    constexpr std::int32_t count = 30, most_lingering = 16;
    std::int32_t resets = 0;
    for (std::int32_t i = 0; i <= count; ++i) {
      const auto id = 2 * i + 1;
      const bool is_last = i == count;
      co_await it.client->say(
        headers_of(id, block_of("POST"), is_last ? ends_stream | ends_headers : ends_headers));
      for (bool ended = false; !ended;) {
        const auto frame = co_await it.client->next();
        REQUIRE(frame);
        resets += frame->type == NGHTTP2_RST_STREAM ? 1 : 0;
        ended = frame->type == NGHTTP2_DATA && frame->id == id && (frame->flags & ends_stream) != 0;
      }
      CHECK(it.client->status[id] == "200");
      if (comes && !is_last)
        co_await it.client->say(frame_of(NGHTTP2_DATA, ends_stream, id, "the rest"));
    }
    CHECK(resets == (comes ? 0 : count - most_lingering));
  });
}

TEST_CASE("what comes of a request that nobody reads leaves the window of its connection whole",
          "[broker]") {
  const std::string large(60'000, 'x');
  std::size_t done = 0;
  attacked it{[&](incoming& in) -> task<exchanged> {
    response_head said;
    said.status = 403;
    const auto is = co_await answer(in, said, large);
    ++done;
    co_return is;
  }};
  const std::string part(16'000, 'y');
  it.run([&]() -> task<void> {
    const auto settings = co_await it.client->next(NGHTTP2_SETTINGS, 0);
    CHECK(settings);
    co_await it.client->say(frame_of(NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, ""));
    // The client opens no window: but for the first, answers wait, and their requests go on.
    for (std::int32_t id = 1; id < 11; id += 2)
      co_await it.client->say(headers_of(id, block_of("POST"), ends_headers));
    const bool answered = co_await until(it.io, [&] { return done == 5; });
    CHECK(answered);
    std::int64_t room = 65'535;
    for (std::int32_t id = 3; id < 11; id += 2)
      for (int i = 0; i < 12; ++i) {
        room -= static_cast<std::int64_t>(part.size());
        co_await it.client->say(frame_of(NGHTTP2_DATA, 0, id, part));
      }
    while (room < static_cast<std::int64_t>(2 * http2_window_bytes)) {
      const auto frame = co_await it.client->next(NGHTTP2_WINDOW_UPDATE, 0);
      REQUIRE(frame);
      room += frame->number(0);
    }
    CHECK_FALSE(it.over);
  });
}

TEST_CASE("a client that sends no more ends what it has asked", "[broker]") {
  bool began = false, gone = false;
  attacked it{[&](incoming& in) -> task<exchanged> {
    began = true;
    gone = co_await in.wait_until_gone();
    co_return exchanged{};
  }};
  it.run([&]() -> task<void> {
    co_await it.client->say(headers_of(1, block_of("GET")));
    const bool there = co_await until(it.io, [&] { return began; });
    CHECK(there);
    co_await it.client->way.end();
    const bool ended = co_await until(it.io, [&] { return it.over; });
    CHECK(ended);
    CHECK(gone);
  });
}

TEST_CASE("a handler that throws gives back its place", "[broker]") {
  attacked it{[&](incoming& in) -> task<exchanged> {
    if (in.head.target == "/throws")
      throw std::runtime_error("a bug");
    co_return co_await say_ok(in);
  }};
  it.run([&]() -> task<void> {
    std::int32_t id = -1;
    for (std::size_t i = 0; i < 2 * http2_streams + 10; ++i) {
      co_await it.client->say(headers_of(id += 2, block_of("GET", {}, "/throws")));
      const auto reset = co_await it.client->next(NGHTTP2_RST_STREAM, id);
      CHECK(reset);
    }
    co_await it.client->say(headers_of(id += 2, block_of("GET")));
    co_await it.client->next(NGHTTP2_HEADERS, id);
    CHECK(it.client->status[id] == "200");
  });
}

namespace {

/// A server that the test is, and the broker's side towards it.
struct attacking_server {
  attacking_server() {
    auto both = pair_of_sockets();
    server.emplace(io, std::move(both[0]));
    way.emplace(io, std::move(both[1]));
    connection = std::make_unique<http2_connection>(*way);
    asio::co_spawn(io, connection->run(), asio::detached);
    while (!connection->takes_more())
      io.run_one();
  }
  ~attacking_server() {
    server->way.cut();
    way->cut();
    io.restart();
    io.run_for(5s);
  }
  /// Hears the first frames, and the first request.
  task<void> hear_request() {
    co_await server->hear_magic();
    const bool ok = co_await server->say(frame_of(NGHTTP2_SETTINGS, 0, 0, ""));
    CHECK(ok);
    const auto head = co_await server->next(NGHTTP2_HEADERS, 1);
    CHECK(head);
  }

  asio::io_context io{1};
  std::optional<raw_end> server;
  std::optional<stream> way;
  std::unique_ptr<http2_connection> connection;
};

} // namespace

TEST_CASE("a server that goes says which requests it has not begun", "[broker]") {
  const bool goes = GENERATE(false, true);
  const auto gone = big_endian(0, 4) + big_endian(NGHTTP2_NO_ERROR, 4);
  const auto refused = big_endian(NGHTTP2_REFUSED_STREAM, 4);
  const auto words =
    goes ? frame_of(NGHTTP2_GOAWAY, 0, 0, gone) : frame_of(NGHTTP2_RST_STREAM, 0, 1, refused);
  attacking_server it;
  REQUIRE(run_until_done(it.io, [&]() -> task<void> {
    const auto one = it.connection->begin();
    auto ok = co_await one->begin(head_of("POST", "/", 3));
    CHECK(ok);
    co_await it.hear_request();
    co_await it.server->say(words);
    const auto said = co_await one->answer();
    CHECK_FALSE(said);
    CHECK(one->was_not_begun());
    CHECK_FALSE(one->was_answered());
    CHECK(it.connection->takes_more() == !goes);
  }));
}

namespace {

/// Servers that the test is, over TLS, and a broker that dials them.
class raw_internet final : public surroundings {
public:
  raw_internet()
      : servers_(*make_authority(now_s()))
      , sandbox_(*make_authority(now_s()))
      , signs_(std::move(*authority::make(servers_)))
      , made_(io, *this, *make_client_context(servers_.certificate)) {
    std::signal(SIGPIPE, SIG_IGN); // As the program does.
    made_.use(*rule_set::make({{"a.example", {}, transform_action{{{"x-key", "secret"}}}}}),
              std::shared_ptr<authority>{std::move(*authority::make(sandbox_))});
  }
  ~raw_internet() override {
    made_.end();
    for (const auto& each : ends_)
      each->way.cut();
    if (client_)
      client_->cut();
    io.restart();
    io.run_for(2s);
  }

  task<result<unique_fd>> dial(const std::string&, std::uint16_t) override {
    auto both = pair_of_sockets();
    ends_.push_back(std::make_shared<raw_end>(io, std::move(both[1])));
    asio::co_spawn(io, be_server(ends_.back()), asio::detached);
    co_return std::move(both[0]);
  }
  task<result<std::string>> token(const std::string&) override { co_return "token"; }
  void refused(const std::string&, std::uint16_t, const std::string&) override {}

  task<std::unique_ptr<outgoing>> connect() {
    auto both = pair_of_sockets();
    asio::co_spawn(
      io,
      [this, socket = std::move(both[1])]() mutable -> task<void> {
        served of;
        co_await made_.serve(std::move(socket), "a.example", 443, of);
      },
      asio::detached);
    client_ = std::make_shared<stream>(io, std::move(both[0]));
    const auto trusted = make_client_context(sandbox_.certificate);
    const auto ok = co_await client_->connect_tls(**trusted, "a.example", 5s, false);
    CHECK(ok);
    co_return make_http1_outgoing(*client_);
  }

  asio::io_context io{1};
  /// What is said to each request, in the order in which they come. `id`: of its stream.
  std::function<std::string(int count, std::int32_t id)> says;
  int requests = 0;
  std::size_t dials() const { return ends_.size(); }

private:
  task<void> be_server(std::shared_ptr<raw_end> end) {
    const auto context = signs_->context_for("a.example", now_s());
    const auto ok = co_await end->way.accept_tls(**context, 5s);
    CHECK(ok);
    co_await end->hear_magic();
    co_await end->say(frame_of(NGHTTP2_SETTINGS, 0, 0, ""));
    for (;;) {
      const auto frame = co_await end->next();
      if (!frame)
        co_return;
      if (frame->type != NGHTTP2_HEADERS)
        continue;
      const auto words = says(++requests, frame->id);
      co_await end->say(words);
    }
  }

  const authority_text servers_, sandbox_;
  std::unique_ptr<authority> signs_;
  std::vector<std::shared_ptr<raw_end>> ends_;
  std::shared_ptr<stream> client_;
  runtime::broker::broker made_;
};

} // namespace

TEST_CASE("what a server has not begun is sent again, once and to another connection", "[broker]") {
  const bool goes = GENERATE(false, true), always = GENERATE(false, true);
  CAPTURE(goes, always);
  raw_internet it;
  it.says = [&](int count, std::int32_t id) {
    if (count > 1 && !always)
      return headers_of(id, hpack_field(":status", "204"));
    if (goes)
      return frame_of(NGHTTP2_GOAWAY, 0, 0, big_endian(0, 4) + big_endian(NGHTTP2_NO_ERROR, 4));
    return frame_of(NGHTTP2_RST_STREAM, 0, id, big_endian(NGHTTP2_REFUSED_STREAM, 4));
  };
  REQUIRE(run_until_done(it.io, [&]() -> task<void> {
    const auto client = co_await it.connect();
    const auto said = co_await ask(*client, head_of("POST", "/"), "");
    CHECK(said.status == (always ? 502 : 204));
    CHECK(it.requests == 2);
    CHECK(it.dials() == 2);
  }));
}

TEST_CASE("what was begun, or whose body was taken, is not sent again", "[broker]") {
  const bool begun = GENERATE(false, true);
  raw_internet it;
  it.says = [&](int, std::int32_t id) {
    const auto why = begun ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_REFUSED_STREAM;
    return frame_of(NGHTTP2_RST_STREAM, 0, id, big_endian(static_cast<std::uint32_t>(why), 4));
  };
  const std::string body = begun ? "" : "hello";
  REQUIRE(run_until_done(it.io, [&]() -> task<void> {
    const auto client = co_await it.connect();
    const auto said = co_await ask(*client, head_of("POST", "/", body.size()), body);
    CHECK(said.status == 502);
    CHECK(it.requests == 1);
  }));
}

TEST_CASE("interim answers and heads of a server have ceilings in HTTP/2", "[broker]") {
  const bool large = GENERATE(false, true);
  attacking_server it;
  REQUIRE(run_until_done(it.io, [&]() -> task<void> {
    const auto one = it.connection->begin();
    const auto ok = co_await one->begin(head_of("GET", "/"));
    CHECK(ok);
    co_await it.hear_request();
    std::string text;
    if (large)
      text =
        headers_of(1,
                   hpack_field(":status", "200") +
                     hpack_field("x", std::string(4000, 'y'), '\x40') + std::string(20, '\xbe'),
                   ends_headers);
    for (int i = 0; i < 1000 && !large; ++i)
      text += headers_of(1, hpack_field(":status", "103"), ends_headers);
    co_await it.server->say(text);
    unsigned heads = 0;
    for (;;) {
      const auto said = co_await one->answer();
      if (!said)
        break;
      ++heads;
    }
    CHECK(heads == (large ? 0 : most_interim_answers + 1));
    const auto reset = co_await it.server->next(NGHTTP2_RST_STREAM, 1);
    CHECK(reset);
    const auto other = it.connection->begin(); // The connection is good.
    CHECK(other);
  }));
}

TEST_CASE("a head that is too large to be sent is told, and the connection is good", "[broker]") {
  attacking_server it;
  REQUIRE(run_until_done(it.io, [&]() -> task<void> {
    const auto large = it.connection->begin();
    fields rest;
    for (int i = 0; i < 40; ++i)
      rest.push_back({"x-" + std::to_string(i), std::string(8000, 'y')});
    const auto no = co_await large->begin(head_of("GET", "/", 0, rest));
    REQUIRE_FALSE(no);
    CHECK(no.reason().code == errc::limit_reached);
    const auto small = it.connection->begin();
    const auto ok = co_await small->begin(head_of("GET", "/"));
    CHECK(ok);
    co_await it.hear_request();
  }));
}

TEST_CASE("trailers of HTTP/2 pass the filter that those of HTTP/1 pass", "[broker]") {
  fields trailers;
  attacked it{[&](incoming& in) -> task<exchanged> {
    for (;;) {
      const auto some = co_await in.body();
      REQUIRE(some);
      if (!*some)
        break;
    }
    trailers = in.trailers();
    co_return co_await say_ok(in);
  }};
  it.run([&]() -> task<void> {
    co_await it.client->say(
      headers_of(1, block_of("POST"), ends_headers) + frame_of(NGHTTP2_DATA, 0, 1, "hello") +
      headers_of(1, hpack_field("authorization", "mine") + hpack_field("x-sum", "5") +
                      hpack_field("set-cookie", "a") + hpack_field("if-match", "b")));
    co_await it.client->next(NGHTTP2_HEADERS, 1);
    CHECK(trailers == fields{{"x-sum", "5"}});
  });
}

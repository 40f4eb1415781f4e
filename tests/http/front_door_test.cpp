#include "base/limits.hpp"
#include "http/transport/front_door.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <filesystem>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

const std::string malformed = R"({"error":"Malformed HTTP request","code":"invalid_request"})";

} // namespace

TEST_CASE("malformed requests are answered with 400 and closed", "[http][front_door]") {
  house h;
  for (
    const auto* bytes :
    {"garbage\r\n\r\n", "\x16\x03\x01\x02", "GET /health\r\n\r\n", "GET /health HTTP/9.9\r\n\r\n",
     "GET /health HTTP/1.1\r\n\r\n", "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n",
     "GET /health HTTP/1.1\r\nHost: localhost\r\nX y: 1\r\n\r\n",
     "GET http://a@localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
     "GET http:///health HTTP/1.1\r\nHost: localhost\r\n\r\n",
     "GET http://localhost#/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
     "GET /health#a HTTP/1.1\r\nHost: localhost\r\n\r\n",
     "GET /health?a#b HTTP/1.1\r\nHost: localhost\r\n\r\n",
     "GET http://:80/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
     "GET /health HTTP/1.1\r\nHost : a\r\n\r\n", "FOO /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
     "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
     "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: "
     "2\r\n\r\nab",
     "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: "
     "chunked\r\n\r\n",
     "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    CAPTURE(bytes);
    client one{h.port()};
    one.send(bytes);
    const auto got = one.receive();
    CHECK(got.status == 400);
    CHECK(got.body == malformed);
    CHECK(one.at_end());
  }
  CHECK(ask(h.port(), "GET", "/health").status == 200);
}

TEST_CASE("what another server may read otherwise is refused", "[http][front_door]") {
  house h;
  const std::string get = "GET /health HTTP/1.1\r\n", host = "Host: localhost\r\n";
  const std::string post = "POST /v1/sandbox/abc/exec HTTP/1.1\r\n" + host;
  const std::string chunks = post + "Transfer-Encoding: chunked\r\n\r\n";
  const auto bytes = GENERATE_COPY(
    as<std::string>{},
    // Lines that end with LF alone, or with CR alone.
    "GET /health HTTP/1.1\nHost: localhost\n\n", "GET /health HTTP/1.1\n" + host + "\r\n",
    "GET /health HTTP/1.0\n\n", "\r\n\r\nGET /health HTTP/1.0\n\n", "GET /health HTTP/1.0\r\n\n",
    get + "Host: localhost\n\r\n", get + host + "\n", get + host + "X: 1\n\r\n",
    get + host + "X: 1\nY: 2\r\n\r\n", get + host + "X: 1\rY: 2\r\n\r\n",
    get + "X:\n" + host + "\r\n",
    // Lines that go on with a blank.
    get + host + "X: 1\r\n 2\r\n\r\n", get + host + "X: 1\r\n\t2\r\n\r\n",
    get + host + "X:\r\n 2\r\n\r\n", get + " X: 1\r\n" + host + "\r\n",
    get + host + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    // Bodies of more than one length.
    post + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    post + "Content-Length: 2, 2\r\n\r\n{}", post + "Content-Length: +2\r\n\r\n{}",
    post + "Content-Length: 0x2\r\n\r\n{}", post + "Content-Length: 2 2\r\n\r\n{}",
    post + "Content-Length: -2\r\n\r\n{}", post + "Content-Length: 18446744073709551618\r\n\r\n{}",
    post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    post + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    post + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
    post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
    post + "Transfer-Encoding: \x0b"
           "chunked\r\n\r\n0\r\n\r\n",
    post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    post + "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    std::string{"POST /health HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
    std::string{"POST /health HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: "
                "chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
    // Chunks whose lines are none.
    chunks + "2\n{}\n0\n\n", chunks + "2\n{}\r\n0\r\n\r\n", chunks + "2\r\n{}\n0\r\n\r\n",
    chunks + "2;a\n{}\r\n0\r\n\r\n", chunks + "2\rx{}\r\n0\r\n\r\n", chunks + "2\r\n{}xx0\r\n\r\n",
    chunks + "2\r\n{}\r\n0\n\r\n", chunks + "2\r\n{}\r\n0\r\nX: 1\n\r\n",
    chunks + "2\r\n{}\r\n0\r\nX: 1\r\n 2\r\n\r\n", chunks + "2\r\n{}\r\n0\r\n\n",
    chunks + " 2\r\n{}\r\n0\r\n\r\n", chunks + "0x2\r\n{}\r\n0\r\n\r\n",
    chunks + "-2\r\n{}\r\n0\r\n\r\n", chunks + "10000000000000002\r\n{}\r\n0\r\n\r\n",
    // Names and values that are none.
    get + host + ": 1\r\n\r\n", get + host + "X\r\n\r\n", get + host + "X y: 1\r\n\r\n",
    get + host + std::string{"X: a\0b\r\n\r\n", 10}, get + host + std::string{"X\0: b\r\n\r\n", 9},
    get + "Host : localhost\r\n\r\n", get + host + host + "\r\n", get + "\r\n");
  CAPTURE(bytes);
  const auto next = request("GET", "/v1/sandbox");
  for (const bool piecewise : {false, true}) {
    client one{h.port()};
    if (piecewise)
      for (const char c : bytes)
        one.send({&c, 1});
    else
      one.send(bytes + next);
    CHECK(one.receive().status == 400);
    CHECK(one.at_end());
  }
  CHECK(h.heard().all().empty());
}

TEST_CASE("what is only odd has one meaning", "[http][front_door]") {
  house h;
  const std::string host = "Host: localhost\r\n";
  const std::string post = "POST /v1/sandbox/abc/exec HTTP/1.1\r\n" + host;
  const std::string body = R"({"argv":["a"]})";
  const auto [bytes, status] = GENERATE_COPY(table<std::string, int>(
    {{"GET /health HTTP/1.1\r\n" + host + "X:\r\nY: \t 1 \t\r\n\r\n", 200},
     {"\r\nGET /health HTTP/1.1\r\n" + host + "\r\n", 200},
     {post + "Transfer-Encoding: \t Chunked \r\n\r\nE;x=y\r\n" + body +
        "\r\n000\r\nX-Late: 1\r\n\r\n",
      200},
     // An address in full names the host, whatever the field says.
     {"GET http://localhost/health HTTP/1.1\r\n" + host + "\r\n", 200},
     {"GET HTTP://LOCALHOST:8787/health HTTP/1.1\r\n" + host + "\r\n", 200},
     {"GET https://localhost/health?a=b HTTP/1.1\r\nHost:\r\n\r\n", 200},
     {"GET http://localhost/health HTTP/1.1\r\nHost: 80-abc.localhost\r\n\r\n", 200},
     {"GET http://80-abc.localhost/ HTTP/1.1\r\n" + host + "\r\n", 502},
     {"GET http://elsewhere.example/v1/pool/stats HTTP/1.1\r\n" + host + "\r\n", 403},
     {"GET http://localhost HTTP/1.1\r\n" + host + "\r\n", 200},
     {"GET http://localhost?a HTTP/1.1\r\n" + host + "\r\n", 200},
     {"OPTIONS http://localhost HTTP/1.1\r\n" + host + "\r\n", 404},
     {"GET /http://localhost/health HTTP/1.1\r\n" + host + "\r\n", 404},
     {"GET ftp://localhost/health HTTP/1.1\r\n" + host + "\r\n", 404},
     {"CONNECT localhost:1 HTTP/1.1\r\n" + host + "\r\n", 404}}));
  CAPTURE(bytes);
  for (const bool piecewise : {false, true}) {
    client one{h.port()};
    if (piecewise)
      for (const char c : bytes)
        one.send({&c, 1});
    else
      one.send(bytes);
    CHECK(one.receive().status == status);
    one.send(request("GET", "/health"));
    CHECK(one.receive().status == 200);
  }
}

TEST_CASE("a valid request before garbage is answered first", "[http][front_door]") {
  house h;
  client one{h.port()};
  one.send(request("GET", "/health") + "garbage!\r\n\r\n");
  CHECK(one.receive().status == 200);
  one.receive();
  CHECK(one.at_end());
}

TEST_CASE("lines are looked at in what a connection brings second", "[http][front_door]") {
  house h;
  for (const std::string second :
       {"GET /health HTTP/1.1\nHost: localhost\r\n\r\n", "GET /health HTTP/1.0\n\n",
        "\r\n\r\nGET /health HTTP/1.0\n\n",
        "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}"
        "\r\n0\r\nX: 1\r\n 2\r\n\r\n"}) {
    CAPTURE(second);
    client together{h.port()};
    together.send(request("POST", "/v1/sandbox", "{}") + second);
    CHECK(together.receive().status == 200);
    CHECK(together.receive().status == 400);
    client apart{h.port()};
    apart.send(request("POST", "/v1/sandbox", "{}"));
    CHECK(apart.receive().status == 200);
    apart.send(second);
    CHECK(apart.receive().status == 400);
  }
}

TEST_CASE("HTTP/1.0 needs no host and knows no chunks", "[http][front_door]") {
  house h;
  h.plays().output = {{output_stream::out, "a\n"}};
  client one{h.port()};
  one.send("GET /health HTTP/1.0\r\n\r\n");
  CHECK(one.receive().body == R"({"ok":true})");
  CHECK(one.at_end());
  client kept{h.port()};
  kept.send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  CHECK(kept.receive().fields.at("connection") == "keep-alive");
  kept.send("POST /v1/sandbox/abc/exec HTTP/1.0\r\nContent-Length: 14\r\n\r\n{\"argv\":[\"a\"]}");
  const auto got = kept.receive();
  CHECK(got.fields.count("transfer-encoding") == 0);
  CHECK(got.body == "event: stdout\ndata: YQo=\n\nevent: exit\ndata: {\"exit_code\":0}\n\n");
}

TEST_CASE("a long URL is refused and leaves nobody hanging", "[http][front_door]") {
  house h;
  for (const std::size_t size : {17'000u, 60'000u, 500'000u}) {
    const auto got = ask(h.port(), "GET", "/v1/" + std::string(size, 'x'));
    CHECK(got.status == 414);
    CHECK(got.body == R"({"error":"URL too long","code":"invalid_request"})");
  }
  CHECK(ask(h.port(), "GET", "/v1/" + std::string(16'000, 'x')).status == 404);
}

TEST_CASE("headers have limits", "[http][front_door]") {
  house h;
  std::string many;
  for (int i = 0; i < 110; ++i)
    many += "X-" + std::to_string(i) + ": 1\r\n";
  CHECK(ask(h.port(), "GET", "/health", {}, many).status == 431);
  CHECK(ask(h.port(), "GET", "/health", {}, "X: " + std::string(17'000, 'y') + "\r\n").status ==
        431);
  CHECK(ask(h.port(), "GET", "/health", {}, std::string(300, 'n') + ": y\r\n").status == 431);
}

TEST_CASE("pipelined requests are all answered, in order", "[http][front_door]") {
  house h;
  client one{h.port()};
  std::string sixty;
  for (int i = 0; i < 60; ++i)
    sixty += request("GET", i % 2 == 0 ? "/health" : "/v1/sandbox/abc/running");
  one.send(sixty);
  for (int i = 0; i < 60; ++i)
    CHECK(one.receive().body == (i % 2 == 0 ? R"({"ok":true})" : R"({"running":true})"));
}

TEST_CASE("a request may come byte by byte", "[http][front_door]") {
  house h;
  client one{h.port()};
  for (const char c : request("POST", "/v1/sandbox", "{}") + request("GET", "/health"))
    one.send({&c, 1});
  CHECK(one.receive().status == 200);
  CHECK(one.receive().status == 200);
}

TEST_CASE("a refused request keeps the connection when its body is small", "[http][front_door]") {
  http::server_options options;
  options.api_key = "k";
  house h{options};
  client one{h.port()};
  one.send(request("POST", "/v1/sandbox/abc/exec", std::string(1000, 'x')) +
           request("GET", "/health"));
  CHECK(one.receive().status == 401);
  CHECK(one.receive().status == 200);
}

TEST_CASE("a large body is refused before it comes", "[http][front_door]") {
  http::server_options options;
  options.api_key = "k";
  house h{options};
  client one{h.port()};
  one.send("PUT /v1/sandbox/abc/file/workspace/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
           "99999999999\r\n\r\n");
  const auto got = one.receive();
  CHECK(got.status == 401);
  CHECK(got.fields.at("connection") == "close");
  // A client that goes on sending sees the answer as well.
  CHECK(
    ask(h.port(), "PUT", "/v1/sandbox/abc/file/workspace/a", std::string(8 << 20, 'x')).status ==
    401);
  const auto exec = ask(h.port(), "POST", "/v1/sandbox/abc/exec", std::string((16 << 20) + 1, ' '),
                        "Authorization: Bearer k\r\n");
  CHECK(exec.status == 413);
  CHECK(
    exec.body ==
    R"({"error":"payload too large: 16777217 bytes exceeds the 16777216-byte limit","code":"payload_too_large"})");
  CHECK(ask(h.port(), "POST", "/v1/sandbox/abc/exec", std::string(16 << 20, ' '),
            "Authorization: Bearer k\r\n")
          .status == 400);
}

TEST_CASE("the bodies of all requests together have a ceiling", "[http][front_door]") {
  http::server_options options;
  options.buffered_body_bytes = 1000;
  // One thread: what has been sent first is read first, and given back before the next.
  house h{options, nullptr, 1};
  const auto post = [&](std::size_t size) {
    return ask(h.port(), "POST", "/v1/sandbox/abc/exec", std::string(size, ' '));
  };
  for (int i = 0; i < 5; ++i)
    CHECK(post(1000).status == 400);
  const auto refused = post(1001);
  CHECK(refused.status == 503);
  CHECK(refused.body ==
        R"({"error":"too many request bodies at once","code":"capacity_exceeded"})");
  CHECK(refused.fields.at("connection") == "close");
  for (const bool completes : {true, false}) {
    client slow{h.port()};
    slow.send(request("GET", "/health"));
    CHECK(slow.receive().status == 200);
    const auto text = request("POST", "/v1/sandbox/abc/exec", std::string(701, ' '));
    slow.send(text.substr(0, text.size() - 1));
    CHECK(post(301).status == 503);
    CHECK(post(300).status == 400);
    CHECK(ask(h.port(), "POST", "/v1/sandbox", std::string(5000, 'x')).status == 200); // Not kept.
    if (completes) {
      slow.send(" ");
      CHECK(slow.receive().status == 400);
    } else {
      slow.close();
    }
    CHECK(post(1000).status == 400);
  }
}

TEST_CASE("an offer to upgrade is ignored", "[http][front_door]") {
  house h;
  client one{h.port()};
  one.send(request("GET", "/health", {}, "Connection: Upgrade\r\nUpgrade: h2c\r\n") +
           request("GET", "/health"));
  CHECK(one.receive().status == 200);
  CHECK(one.receive().status == 200);
}

TEST_CASE("slow clients are cut", "[http][front_door]") {
  http::server_options options;
  options.time.first = options.time.idle = 50ms;
  options.time.header = 50ms;
  options.time.progress = 50ms;
  house h{options};
  client silent{h.port()};
  CHECK(silent.at_end());
  client in_header{h.port()};
  in_header.send("GET /heal");
  CHECK(in_header.at_end());
  client in_body{h.port()};
  in_body.send("POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
  CHECK(in_body.receive().status == 408);
  CHECK(in_body.at_end());
  client refused{h.port()};
  refused.send(
    "POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc");
  CHECK(refused.receive().status == 404);
  CHECK(refused.at_end());
  // On a busy machine this client may be a slow one, too, and is cut before it has asked.
  for (int tries = 0;; ++tries) {
    client after{h.port()};
    after.send(request("GET", "/health"));
    const auto got = after.receive();
    if (got.status == 0 && tries < 100)
      continue;
    CHECK(got.status == 200);
    CHECK(after.at_end());
    break;
  }
}

TEST_CASE("further connections wait until there is room", "[http][front_door]") {
  http::server_options options;
  options.max_connections = 2;
  house h{options};
  auto first = std::make_unique<client>(h.port());
  first->send(request("GET", "/v1/sandbox/abc/running"));
  CHECK(first->receive().status == 200);
  client second{h.port()};
  second.send(request("GET", "/v1/sandbox/abc/running"));
  CHECK(second.receive().status == 200);
  client third{h.port()};
  third.send(request("GET", "/v1/sandbox/abc/running"));
  first.reset();
  CHECK(third.receive().status == 200);
  second.send(request("GET", "/v1/sandbox/abc/running"));
  CHECK(second.receive().status == 200);
}

namespace {

http::server_options with_few_places() {
  http::server_options options;
  options.api_key = "s3cret";
  options.max_connections = 128;
  options.time.first = options.time.header = 1h; // So that nothing goes by itself.
  return options;
}

const std::string key = "Authorization: Bearer s3cret\r\n";
const std::string running = request("GET", "/v1/sandbox/abc/running", {}, key);

/// By all of this program.
std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator{"/proc/self/fd"})
    ++count;
  return count;
}

/// An address of this machine's loopback.
std::string loopback(unsigned number) {
  return "127.1." + std::to_string(number / 200) + "." + std::to_string(1 + number % 200);
}

} // namespace

TEST_CASE("clients that say nothing keep out nobody who has the key", "[http][front_door]") {
  house h{with_few_places()};
  client early{h.port()};
  early.send(running);
  CHECK(early.receive().status == 200);
  const auto before = open_descriptors();
  std::vector<std::unique_ptr<client>> silent;
  const bool from_many = GENERATE(false, true);
  for (unsigned i = 0; i < 600; ++i) {
    silent.push_back(
      std::make_unique<client>(h.port(), false, from_many ? loopback(i) : "127.0.0.1"));
    switch (i % 4) {
      case 0: break;
      case 1: silent.back()->send("GET /v1/sandbox HTTP/1.1\r\nHost: lo"); break;
      case 2: silent.back()->send(request("GET", "/v1/sandbox")); break; // Without a key.
      default: silent.back()->send("\r\n"); break;
    }
  }
  client late{h.port()};
  late.send(running);
  CHECK(late.receive().status == 200);
  early.send(running); // It has been there for longest.
  CHECK(early.receive().status == 200);
  CHECK(silent.front()->at_end());
  // Both ends are this program's: of the node's own there are no more than it has places for.
  CHECK(open_descriptors() < before + silent.size() + 128 + 64 + 16);
}

TEST_CASE("headers that never end keep out nobody who has the key", "[http][front_door]") {
  house h{with_few_places()};
  std::vector<std::unique_ptr<client>> slow;
  for (unsigned i = 0; i < 300; ++i) {
    slow.push_back(std::make_unique<client>(h.port(), false, loopback(i)));
    slow.back()->send("GET /v1/sandbox HTTP/1.1\r\n");
  }
  for (unsigned round = 0; round < 4; ++round) {
    for (auto& each : slow)
      each->send("X-" + std::to_string(round) + ": 1\r\n");
    client one{h.port()};
    one.send(running);
    CHECK(one.receive().status == 200);
  }
}

TEST_CASE("strangers of one network take each other's places, and nobody else's",
          "[http][front_door]") {
  auto options = with_few_places();
  options.max_connections = 256;
  house h{options};
  client elsewhere{h.port(), false, "127.1.0.1"};
  std::vector<std::unique_ptr<client>> crowd;
  for (std::size_t i = 0; i < 4 * limits::least_strangers_of_network; ++i)
    crowd.push_back(std::make_unique<client>(h.port()));
  CHECK(crowd.front()->at_end());
  elsewhere.send(running);
  CHECK(elsewhere.receive().status == 200);
  crowd.back()->send(running);
  CHECK(crowd.back()->receive().status == 200);
}

TEST_CASE("a proxy's connections are as many as there are places", "[http][front_door]") {
  house h{with_few_places()};
  std::vector<std::unique_ptr<client>> of_proxy;
  for (unsigned i = 0; i < 128; ++i) {
    of_proxy.push_back(std::make_unique<client>(h.port()));
    of_proxy.back()->send(running);
    CHECK(of_proxy.back()->receive().status == 200);
  }
  for (auto& each : of_proxy) {
    each->send(running);
    CHECK(each->receive().status == 200);
  }
}

TEST_CASE("a connection that says nothing is cut, and one that has asked stays",
          "[http][front_door]") {
  http::server_options options;
  options.time.first = 200ms;
  options.time.idle = 1h;
  house h{options};
  const auto is_served = [](client& one) {
    one.send(request("GET", "/health"));
    return one.receive().status == 200;
  };
  std::unique_ptr<client> known;
  for (int tries = 0; tries < 100; ++tries) { // On a busy machine the first ones may be too slow.
    known = std::make_unique<client>(h.port());
    if (is_served(*known))
      break;
  }
  client blank{h.port()}; // An empty line is no request.
  while (blank.send("\r\n"))
    REQUIRE(is_served(*known));
  client silent{h.port()};
  CHECK(silent.at_end());
  CHECK(is_served(*known)); // It has been there for longer than both.
}

TEST_CASE("stopping lets a request under way end, and closes idle connections",
          "[http][front_door]") {
  house h;
  h.plays().end.reset();
  client idle{h.port()};
  idle.send(request("GET", "/health"));
  CHECK(idle.receive().status == 200);
  client busy{h.port()};
  busy.send(request("POST", "/v1/sandbox/abc/exec", R"({"argv":["a"]})"));
  busy.read_until("\r\n\r\n");
  REQUIRE(h.heard().has("read 0 attached"));
  std::thread stopper{[&] { h.server().stop(10s); }};
  CHECK(idle.at_end());
  h.end_command({0});
  CHECK(busy.chunk() == "event: exit\ndata: {\"exit_code\":0}\n\n");
  CHECK(busy.chunk().empty());
  stopper.join();
}

TEST_CASE("stopping cuts what does not end", "[http][front_door]") {
  house h;
  h.plays().end.reset();
  client busy{h.port()};
  busy.send(request("POST", "/v1/sandbox/abc/exec", R"({"argv":["a"]})"));
  busy.read_until("\r\n\r\n");
  client waiting{h.port()};
  h.plays().hold_find = true;
  waiting.send(request("GET", "/v1/sandbox/abd/running"));
  REQUIRE(h.heard().has("find abd"));
  h.server().stop(0ms);
  CHECK(busy.chunk().empty());
  CHECK(waiting.at_end());
  h.release(); // The answer to nobody does no harm.
}

TEST_CASE("who is left without an answer is told whether to ask again", "[http][front_door]") {
  io_pool io{1};
  http::front_door_options on_loopback;
  on_loopback.address = "127.0.0.1";
  http::front_door door{io, on_loopback, [](const http::request_head&) {
                          http::admission plan;
                          plan.body_limit = 100;
                          plan.answer = [](const std::string&, const http::reply&) {};
                          return plan;
                        }};
  REQUIRE(door.start());
  client one{door.port()};
  for (const auto* method : {"GET", "DELETE"}) {
    one.send(request(method, "/a"));
    const auto again = one.receive();
    CHECK(again.status == 503);
    CHECK(again.fields.at("retry-after") == "1");
    CHECK(again.body.find(R"("code":"node_unreachable")") != std::string::npos);
  }
  one.send(request("POST", "/a", "body"));
  const auto unknown = one.receive();
  CHECK(unknown.status == 502);
  CHECK(unknown.fields.count("retry-after") == 0);
  CHECK(unknown.body.find("nobody knows") != std::string::npos);
}

TEST_CASE("whatever is sent, the server lives and answers", "[http][front_door][property]") {
  house h;
  const auto seed = GENERATE(take(150, random(0u, 10'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  std::string text = request("PUT", "/v1/sandbox/abc/file/workspace/a%20b", "0123456789",
                             "Expect: 100-continue\r\nTransfer-Encoding: identity\r\n") +
                     request("POST", "/v1/sandbox/abc/exec", R"({"argv":["a"]})");
  for (unsigned n = 1 + rng() % 8; n > 0; --n) {
    const auto at = rng() % text.size();
    switch (rng() % 3) {
      case 0: text[at] = static_cast<char>(rng()); break;
      case 1: text.erase(at, 1 + rng() % 10); break;
      default: text.insert(at, std::string(1 + rng() % 3, "\r\n :/%0,\x80x"[rng() % 9]));
    }
  }
  {
    client one{h.port()};
    one.send(text);
    ::shutdown(one.fd(), SHUT_WR);
    while (!one.read(65'536).empty()) {
    }
  }
  CHECK(ask(h.port(), "GET", "/health").status == 200);
}

TEST_CASE("running out of descriptors does not stop the server", "[http][front_door]") {
  // In a child of its own, since the limit is the whole process'.
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    bool served = false;
    {
      house h;
      std::vector<int> eaten;
      client before{h.port()}; // Its server side is accepted while there are descriptors.
      before.send(request("GET", "/health"));
      served = before.receive().status == 200;
      client waiting{h.port()};
      waiting.send(request("GET", "/health"));
      served = served && waiting.receive().status == 200;
      const int in_queue = ::socket(AF_INET, SOCK_STREAM, 0);
      const rlimit few{static_cast<rlim_t>(in_queue + 1), static_cast<rlim_t>(in_queue + 1)};
      ::setrlimit(RLIMIT_NOFILE, &few);
      for (int fd = 0; (fd = ::dup(0)) >= 0;)
        eaten.push_back(fd);
      sockaddr_storage where{};
      socklen_t size = sizeof where;
      ::getpeername(before.fd(), reinterpret_cast<sockaddr*>(&where), &size);
      served = served && ::connect(in_queue, reinterpret_cast<sockaddr*>(&where), size) == 0;
      const auto text = request("GET", "/health");
      served = served && ::send(in_queue, text.data(), text.size(), 0) > 0;
      // The listener has met EMFILE once this connection, which shares its threads, has been served
      // again.
      before.send(text);
      served = served && before.receive().status == 200;
      timeval short_wait{0, 200'000};
      ::setsockopt(in_queue, SOL_SOCKET, SO_RCVTIMEO, &short_wait, sizeof short_wait);
      char byte = 0;
      served = served && ::recv(in_queue, &byte, 1, 0) < 0; // Not accepted yet.
      waiting.close();                                      // Now there is one.
      short_wait = {60, 0};
      ::setsockopt(in_queue, SOL_SOCKET, SO_RCVTIMEO, &short_wait, sizeof short_wait);
      served = served && ::recv(in_queue, &byte, 1, 0) == 1;
      ::close(in_queue);
      for (const int fd : eaten)
        ::close(fd);
    }
    ::_exit(served ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

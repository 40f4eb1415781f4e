// Servers in sandboxes, reached from outside.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sys/socket.h>

using namespace insula::test;

namespace {

struct serving_node : node {
  using node::node;

  /// A server in the background of a sandbox, that is there.
  void serve(const std::string& id) const {
    std::ifstream file{INSULA_PREVIEWS_SERVER};
    const std::string script{std::istreambuf_iterator<char>{file}, {}};
    REQUIRE(ask("PUT", "/v1/sandbox/" + id + "/file/workspace/server.py", script).status == 200);
    REQUIRE(
      sh(id, "setsid /usr/bin/python3 server.py 8000 > /dev/null 2>&1 < /dev/null &").exit_code ==
      0);
    REQUIRE(ask("GET", "/v1/sandbox/" + id + "/port/8000/ready").status == 200);
  }
  std::string host(const std::string& id) const {
    return "8000-" + id + ".localhost:" + std::to_string(port());
  }
  static std::string path(const std::string& id) { return "/v1/sandbox/" + id + "/port/8000"; }
  http_answer get(const std::string& id, const std::string& target) const {
    http_connection one{port()};
    one.send("GET " + target + " HTTP/1.1\r\nHost: " + host(id) + "\r\n\r\n");
    return one.receive();
  }
  bool is_frozen(const std::string& id) const {
    return ask("GET", "/console/sandboxes").body.find(R"("id":")" + id + R"(","state":"frozen")") !=
           std::string::npos;
  }
};

} // namespace

TEST_CASE("a server on a sandbox's loopback is reached, and only that sandbox's", "[previews]") {
  const serving_node it;
  it.serve("a");
  it.serve("b");
  const auto of_a = it.get("a", "/x?y");
  CHECK(of_a.status == 200);
  CHECK(of_a.body.ends_with(" /x?y for 127.0.0.1"));
  CHECK(it.ask("GET", it.path("a") + "/z").body ==
        of_a.body.substr(0, of_a.body.find(' ')) + " /z for 127.0.0.1");
  CHECK(it.get("b", "/x?y").status == 200);
  CHECK(it.get("c", "/").status == 502);
  CHECK(it.ask("GET", "/v1/sandbox/a/port/8001/").status == 502);
  // The port is not this machine's.
  CHECK(it.ask("GET", "/v1/sandbox/c/port/" + std::to_string(it.port()) + "/health").status == 502);
}

TEST_CASE("execd goes on to a server on its sandbox's loopback", "[previews][execd]") {
  const serving_node it;
  it.serve("a");
  const std::string execd = "/sandboxes/a/proxy/44772/proxy/";
  const auto answer = it.ask("GET", execd + "8000/x?y");
  CHECK(answer.status == 200);
  CHECK(answer.body.ends_with(" /x?y for 127.0.0.1"));
  CHECK(it.ask("GET", execd + "8001/").status == 502);
  CHECK(it.ask("GET", execd).status == 400);
}

TEST_CASE("redirects of a server that is reached by path stay below it", "[previews]") {
  const serving_node it;
  it.serve("a");
  for (const std::string& prefix : {it.path("a"), std::string{"/sandboxes/a/proxy/8000"}})
    for (const auto* how : {"host", "own"}) {
      const auto moved = it.ask("GET", prefix + "/moved/" + how);
      CHECK(moved.status == 302);
      CHECK(moved.fields.at("location") == prefix + "/there?a");
      CHECK(moved.fields.at("refresh") == "0; url=" + prefix + "/there");
      CHECK(moved.fields.at("content-location") == prefix + "/there");
      CHECK(it.ask("GET", moved.fields.at("location")).body.find(" /there?a for ") !=
            std::string::npos);
    }
  CHECK(it.get("a", "/moved/host").fields.at("location") == "http://" + it.host("a") + "/there?a");
}

TEST_CASE("early hints come early, and fields behind the body behind it", "[previews]") {
  const serving_node it;
  it.serve("a");
  http_connection one{it.port()};
  one.send(http_request("GET", it.path("a") + "/hinted"));
  const auto hint = one.receive(true);
  CHECK(hint.status == 103);
  CHECK(hint.fields.at("link") == "<" + it.path("a") + "/a.css>; rel=preload");
  it.sh("a", "touch go0"); // The answer is not there before.
  const auto answer = one.receive_head();
  CHECK(answer.status == 200);
  CHECK(answer.fields.at("trailer") == "X-Sum");
  it.sh("a", "touch go1");
  std::string rest;
  std::array<char, 256> some{};
  while (rest.find("\r\n\r\n") == std::string::npos) {
    const auto n = ::recv(one.fd(), some.data(), some.size(), 0);
    REQUIRE(n > 0);
    rest.append(some.data(), static_cast<std::size_t>(n));
  }
  CHECK(rest.ends_with("0\r\nX-Sum: 7\r\n\r\n"));
}

TEST_CASE("a frozen sandbox goes on for whoever asks its server, and is frozen again",
          "[previews]") {
  const serving_node it{"sandbox: {freeze_after: 1s}"};
  it.serve("a");
  http_connection kept{it.port()};
  for (int round = 0; round < 2; ++round) {
    REQUIRE(eventually([&] { return it.is_frozen("a"); }, 60s));
    kept.send("GET / HTTP/1.1\r\nHost: " + it.host("a") + "\r\n\r\n");
    CHECK(kept.receive().status == 200);
  }
}

TEST_CASE("what is large passes with little memory, both ways", "[previews]") {
  const serving_node it;
  it.serve("a");
  constexpr std::uint64_t size = 512u << 20;
  const auto before = resident_bytes(it.pid());
  {
    http_connection down{it.port()};
    down.send("GET /zeros/" + std::to_string(size) + " HTTP/1.1\r\nHost: " + it.host("a") +
              "\r\n\r\n");
    REQUIRE(down.receive_head().status == 200);
    std::uint64_t got = 0;
    while (const auto some = down.more())
      got += some->size();
    CHECK(down.whole());
    CHECK(got == size);
    CHECK(resident_bytes(it.pid()) < before + (16u << 20));
  }
  http_connection up{it.port()};
  up.send("POST / HTTP/1.1\r\nHost: " + it.host("a") +
          "\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n");
  const std::string block(1u << 20, 'x');
  for (std::uint64_t sent = 0; sent < size; sent += block.size())
    REQUIRE(up.send(block));
  CHECK(resident_bytes(it.pid()) < before + (16u << 20));
  CHECK(up.receive().body == std::to_string(size));
}

TEST_CASE("events come when they happen", "[previews]") {
  const serving_node it;
  it.serve("a");
  http_connection one{it.port()};
  one.send("GET /events HTTP/1.1\r\nHost: " + it.host("a") + "\r\n\r\n");
  const auto head = one.receive_head();
  CHECK(head.fields.at("content-type") == "text/event-stream");
  for (int number = 0; number < 3; ++number) {
    CHECK(one.more() == "data: " + std::to_string(number) + "\n\n");
    REQUIRE(it.sh("a", "touch go" + std::to_string(number)).exit_code == 0);
  }
  CHECK_FALSE(one.more());
  CHECK(one.whole());
}

TEST_CASE("many at once, and a sandbox that is deleted under them", "[previews]") {
  const serving_node it;
  it.serve("a");
  const auto answers = at_once(100, [&](std::size_t) { return it.get("a", "/").status; });
  CHECK(std::count(answers.begin(), answers.end(), 200) == 100);
  http_connection open{it.port()};
  open.send("GET /events HTTP/1.1\r\nHost: " + it.host("a") + "\r\n\r\n");
  REQUIRE(open.receive_head().status == 200);
  REQUIRE(open.more());
  CHECK(it.remove("a") == 204);
  while (open.more()) {
  }
  CHECK_FALSE(open.whole());
  CHECK(it.get("a", "/").status == 502);
}

TEST_CASE("a server is reached after this node's has been killed", "[previews]") {
  serving_node it;
  it.serve("a");
  const auto before = it.get("a", "/").body;
  it.crash_server();
  it.start();
  CHECK(it.get("a", "/").body == before);
}

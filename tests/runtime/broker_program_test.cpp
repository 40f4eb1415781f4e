// The broker's own program, whose spawner, gateway and server the test is. Needs root.
#include "base/packed_text.hpp"
#include "runtime/broker/broker.hpp"
#include "runtime/broker/http1.hpp"
#include "runtime/broker/http2.hpp"
#include "runtime/broker/protocol.hpp"
#include "runtime/descriptors.hpp"
#include "tests/support/broker_talk.hpp"
#include "tests/support/catch.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace insula;
using namespace insula::runtime;
using namespace insula::runtime::broker;
using namespace std::chrono_literals;
using insula::test::now_s;

namespace {

namespace asio = boost::asio;
using descriptor = asio::posix::stream_descriptor;

std::array<unique_fd, 2> pair_of(int kind) {
  std::array<int, 2> both{};
  REQUIRE(::socketpair(AF_UNIX, kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both.data()) == 0);
  return {unique_fd{both[0]}, unique_fd{both[1]}};
}

/// Says the headers that it has heard.
task<exchanged> mirror(incoming& in) {
  std::string text = in.head.target + '\n';
  for (const auto& [name, value] : in.head.rest)
    text += name + ": " + value + '\n';
  response_head said;
  said.status = 200;
  co_return co_await answer(in, said, text);
}

class running_broker {
public:
  running_broker()
      : servers(*make_authority(now_s()))
      , sandbox(*make_authority(now_s()))
      , signs_(std::move(*authority::make(servers)))
      , gateway_(io)
      , server_(io) {
    std::signal(SIGPIPE, SIG_IGN);
    auto ours = pair_of(SOCK_SEQPACKET);
    spawner_ = std::move(ours[0]);
    pid = ::fork();
    if (pid == 0) {
      ::dup2(ours[1].get(), spawner_fd);
      ::execl(INSULA_BROKER, "insula-broker", "1879048190", "test", nullptr);
      ::_exit(127);
    }
    auto gate = pair_of(SOCK_SEQPACKET), server = pair_of(SOCK_STREAM);
    give(order::gateway, gate[1]);
    give(order::serve, server[1]);
    gateway_.assign(gate[0].release());
    server_.assign(server[0].release());
    asio::co_spawn(io, be_gateway(), asio::detached);
  }
  ~running_broker() {
    for (const auto& each : streams_)
      each->cut();
    spawner_.reset(); // Without its spawner it ends.
    int status = 0;
    for (int i = 0; i < 500 && ::waitpid(pid, &status, WNOHANG) == 0; ++i)
      ::usleep(10'000);
    CHECK(WIFEXITED(status));
    boost::system::error_code ignored;
    gateway_.close(ignored);
    server_.close(ignored);
    io.restart();
    io.run_for(2s);
  }

  /// What the frame is answered with.
  task<result<std::string>> say(question what, std::string text) {
    frame head{static_cast<std::uint32_t>(text.size()), what, ++last_, 0, 0};
    std::string bytes(sizeof head, '\0');
    std::memcpy(bytes.data(), &head, sizeof head);
    bytes += text;
    co_await asio::async_write(server_, asio::buffer(bytes), asio::use_awaitable);
    co_return co_await hear(head.id);
  }
  task<result<std::string>> hear(std::uint64_t id) {
    for (;;) {
      frame head{};
      co_await asio::async_read(server_, asio::buffer(&head, sizeof head), asio::use_awaitable);
      std::string text(head.bytes, '\0');
      co_await asio::async_read(server_, asio::buffer(text), asio::use_awaitable);
      if (head.is_answer != 0 && head.id == id) {
        if (head.error != 0)
          co_return error{static_cast<errc>(head.error), text};
        co_return text;
      }
      if (head.what != question::token)
        continue;
      const auto token = "token for " + text;
      frame answer{static_cast<std::uint32_t>(token.size()), question::token, head.id, 0, 1};
      std::string bytes(sizeof answer, '\0');
      std::memcpy(bytes.data(), &answer, sizeof answer);
      bytes += token;
      co_await asio::async_write(server_, asio::buffer(bytes), asio::use_awaitable);
      if (id == 0)
        co_return text;
    }
  }
  task<result<std::string>> use(std::vector<request_rule> rules) {
    packed_writer all;
    all.text(sandbox.certificate).text(sandbox.key).text(servers.certificate).text(to_text(rules));
    all.text("the sandbox of this test");
    co_return co_await say(question::use, all.take());
  }
  /// The answer to a request for that path, in a connection of its own.
  task<std::string> get(std::string name, std::string path) {
    auto both = pair_of(SOCK_STREAM);
    gateway_packet said{word::client};
    said.port = 443;
    said.id = ++last_;
    send(said, name, both[1].get());
    both[1].reset();
    const auto way = std::make_shared<stream>(io, std::move(both[0]));
    streams_.push_back(way);
    const auto trusted = make_client_context(sandbox.certificate);
    const auto ok = co_await way->connect_tls(**trusted, name, 5s, false);
    if (!ok)
      co_return "no TLS: " + ok.reason().message;
    const auto one = make_http1_outgoing(*way);
    request_head head;
    head.method = "GET";
    head.authority = name;
    head.target = path;
    static_cast<void>(co_await one->begin(head));
    auto answered = co_await one->answer();
    if (!answered)
      co_return answered.reason().message;
    std::string text = std::to_string(answered->status) + '\n';
    for (;;) {
      auto next = co_await one->body();
      if (!next || !*next)
        break;
      text += **next;
    }
    way->cut();
    co_return text;
  }
  /// A client that stays, and has had an answer. Null: it has not come so far.
  task<std::shared_ptr<stream>> stay(std::string name) {
    auto both = pair_of(SOCK_STREAM);
    gateway_packet said{word::client};
    said.port = 443;
    said.id = next_client_++;
    send(said, name, both[1].get());
    both[1].reset();
    const auto way = std::make_shared<stream>(io, std::move(both[0]));
    streams_.push_back(way);
    const auto trusted = make_client_context(sandbox.certificate);
    const auto ok = co_await way->connect_tls(**trusted, name, 5s, false);
    if (!ok)
      co_return nullptr;
    co_await way->write("GET / HTTP/1.1\r\nhost: " + name + "\r\n\r\n");
    std::string some(4096, '\0');
    const auto size = co_await way->read(some.data(), some.size());
    co_return size&&* size > 0 ? way : nullptr;
  }
  static task<void> read_to_end(stream& of) {
    std::string some(4096, '\0');
    for (;;) {
      const auto size = co_await of.read(some.data(), some.size());
      if (!size)
        co_return;
      if (*size == 0)
        co_return;
    }
  }
  /// Another gateway in place of the one before, whose numbers begin anew.
  void change_gateway() {
    auto gate = pair_of(SOCK_SEQPACKET);
    give(order::gateway, gate[1]);
    gateway_ = descriptor{io, gate[0].release()};
    next_client_ = 1;
    asio::co_spawn(io, be_gateway(), asio::detached);
  }
  void tell(word what) { send(gateway_packet{what}, {}, -1); }
  void run(std::function<task<void>()> work) { REQUIRE(test::run_until_done(io, std::move(work))); }

  asio::io_context io{1};
  const authority_text servers, sandbox;
  pid_t pid = -1;
  int over = 0;
  std::uint64_t from_clients = 0;

private:
  void give(order what, const unique_fd& way) {
    spawner_packet head{what};
    iovec part{&head, sizeof head};
    const int fd = way.get();
    REQUIRE(send_packet<1>(spawner_.get(), &part, 1, &fd, 1) == sizeof head);
  }
  void send(gateway_packet said, const std::string& text, int fd) {
    iovec parts[2] = {{&said, sizeof said}, {const_cast<char*>(text.data()), text.size()}};
    CHECK(send_packet<1>(gateway_.native_handle(), parts, 2, &fd, fd < 0 ? 0 : 1) > 0);
  }
  task<void> be_gateway() {
    for (;;) {
      boost::system::error_code failed;
      co_await gateway_.async_wait(descriptor::wait_read,
                                   asio::redirect_error(asio::use_awaitable, failed));
      if (failed)
        co_return;
      struct {
        gateway_packet said;
        char text[max_text];
      } packet;
      int fds[1], count = 0;
      const auto n = receive_packet(gateway_.native_handle(), {&packet, sizeof packet}, fds, count,
                                    MSG_DONTWAIT);
      if (n <= 0 && errno != EAGAIN)
        co_return;
      if (n < static_cast<ssize_t>(sizeof packet.said))
        continue;
      const std::string text{packet.text, static_cast<std::size_t>(n) - sizeof packet.said};
      if (packet.said.what == word::over) {
        ++over;
        from_clients += packet.said.from_client;
      } else if (packet.said.what == word::dial && text == "gone.example") {
        gateway_packet said{word::dialled};
        said.id = packet.said.id;
        said.error = 1;
        send(said, "there is nobody at that port", -1);
      } else if (packet.said.what == word::dial) {
        auto both = pair_of(SOCK_STREAM);
        gateway_packet said{word::dialled};
        said.id = packet.said.id;
        send(said, {}, both[1].get());
        const auto way = std::make_shared<stream>(io, std::move(both[0]));
        streams_.push_back(way);
        asio::co_spawn(io, serve(way, text), asio::detached);
      }
    }
  }
  task<void> serve(std::shared_ptr<stream> way, std::string name) {
    const auto context = signs_->context_for(name, now_s());
    const auto ok = co_await way->accept_tls(**context, 5s);
    if (ok && way->protocol() == "h2")
      co_await serve_http2(*way, mirror_, 5s);
    else if (ok)
      co_await serve_http1(*way, mirror_, 5s);
    way->cut();
  }

  std::unique_ptr<authority> signs_;
  unique_fd spawner_;
  descriptor gateway_, server_;
  std::uint64_t last_ = 0, next_client_ = 1000;
  std::vector<std::shared_ptr<stream>> streams_;
  const request_handler mirror_ = mirror;
};

std::string contents(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

} // namespace

TEST_CASE("the broker does what the rules of its sandbox say, with no rights",
          "[broker][program]") {
  running_broker it;
  it.run([&]() -> task<void> {
    const auto before = co_await it.get("a.example", "/");
    CHECK(before.starts_with("no TLS")); // Nobody has said yet what is to be done.
    std::vector<request_rule> rules{
      {"a.example", {}, transform_action{{{"x-key", "secret"}}}},
      {"gone.example", {}, transform_action{{{"x-key", "secret"}}}},
      {"b.example", {}, forward_action{"https://proxy.example/base"}}};
    const auto used = co_await it.use(rules);
    REQUIRE(used);
    const auto changed = co_await it.get("a.example", "/path");
    CHECK(changed == "200\n/path\nx-key: secret\n");
    const auto none = co_await it.get("gone.example", "/");
    CHECK(none == "502\ngone.example: there is nobody at that port\n");

    bool asked = false;
    asio::co_spawn(
      it.io,
      [&]() -> task<void> {
        const auto audience = co_await it.hear(0);
        asked = audience && *audience == "https://proxy.example/base";
      },
      asio::detached);
    const auto forwarded = co_await it.get("b.example", "/p");
    CHECK(asked);
    CHECK(forwarded.find("vercel-sandbox-oidc-token: token for https://proxy.example/base\n") !=
          std::string::npos);

    const auto figures = co_await it.say(question::figures, {});
    REQUIRE(figures);
    packed_reader read{*figures};
    CHECK(read.number() == 3);
    CHECK(read.number() == 1);
    const auto wrong = co_await it.say(question::use, "nonsense");
    CHECK(wrong.reason().code == errc::invalid_request);
    const auto still = co_await it.get("a.example", "/path");
    CHECK(still == "200\n/path\nx-key: secret\n");
  });
  const auto proc = "/proc/" + std::to_string(it.pid);
  const auto status = contents(proc + "/status");
  CHECK(status.find("Uid:\t1879048190\t1879048190") != std::string::npos);
  CHECK(status.find("CapEff:\t0000000000000000") != std::string::npos);
  CHECK(status.find("NoNewPrivs:\t1") != std::string::npos);
  CHECK(status.find("Seccomp:\t2") != std::string::npos);
  CHECK(contents(proc + "/environ").find("secret") == std::string::npos);
  it.run([&]() -> task<void> {
    asio::steady_timer timer{it.io};
    for (int i = 0; i < 500 && it.over < 5; ++i) {
      timer.expires_after(10ms);
      co_await timer.async_wait(asio::use_awaitable);
    }
  });
  CHECK(it.over == 5);
  CHECK(it.from_clients > 0);
}

TEST_CASE("clients end with the gateway that has handed them over", "[broker][program]") {
  running_broker it;
  it.run([&]() -> task<void> {
    std::vector<request_rule> rules{{"a.example", {}, respond_action{200, {}, "said"}}};
    const auto used = co_await it.use(rules);
    REQUIRE(used);
    const auto old = co_await it.stay("a.example");
    REQUIRE(old);
    it.change_gateway();
    co_await it.read_to_end(*old);
    const auto next = co_await it.stay("a.example");
    CHECK(next);
  });
}

TEST_CASE("what is connected ends when the gateway says that an address is denied",
          "[broker][program]") {
  running_broker it;
  it.run([&]() -> task<void> {
    std::vector<request_rule> rules{{"a.example", {}, transform_action{{{"x-key", "secret"}}}}};
    const auto used = co_await it.use(rules);
    REQUIRE(used);
    const auto old = co_await it.stay("a.example");
    REQUIRE(old);
    it.tell(word::changed);
    co_await it.read_to_end(*old);
    const auto next = co_await it.stay("a.example");
    CHECK(next);
  });
}

// The broker between a client that trusts its sandbox's authority and servers that it dials, over
// TLS and sockets of the test's own.
#include "runtime/broker/broker.hpp"
#include "runtime/broker/http1.hpp"
#include "runtime/broker/http2.hpp"
#include "tests/support/broker_talk.hpp"
#include "tests/support/catch.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace insula;
using namespace insula::runtime::broker;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

namespace asio = boost::asio;

/// Says what it has heard, a line for each.
task<exchanged> mirror(incoming& in) {
  std::string text = in.head.method + ' ' + in.head.authority + ' ' + in.head.target + '\n';
  for (const auto& [name, value] : in.head.rest)
    text += name + ": " + value + '\n';
  for (;;) {
    auto next = co_await in.body();
    if (!next)
      co_return exchanged{};
    if (!*next)
      break;
    text += **next;
  }
  response_head said;
  said.status = 200;
  co_return co_await answer(in, said, text);
}

/// An internet of servers in this process, and a broker that dials them.
class small_internet final : public surroundings {
public:
  small_internet()
      : servers(*make_authority(now_s()))
      , sandbox(*make_authority(now_s()))
      , signs_(std::move(*authority::make(servers)))
      , made(io, *this, *make_client_context(servers.certificate)) {
    std::signal(SIGPIPE, SIG_IGN); // As the program does.
  }
  ~small_internet() override {
    made.end();
    for (const auto& each : streams_)
      each->cut();
    io.restart();
    io.run_for(2s);
  }

  task<result<unique_fd>> dial(const std::string& host, std::uint16_t port) override {
    dialled.push_back(host + ':' + std::to_string(port));
    if (gone.contains(host))
      co_return error{errc::io_failed, "there is nobody at that port"};
    auto both = pair_of_sockets();
    const auto way = std::make_shared<stream>(io, std::move(both[1]));
    streams_.push_back(way);
    asio::co_spawn(io, serve(way, certified.contains(host) ? certified[host] : host),
                   asio::detached);
    co_return std::move(both[0]);
  }
  task<result<std::string>> token(const std::string& audience) override {
    co_return "token for " + audience;
  }
  void refused(const std::string& name, std::uint16_t, const std::string&) override {
    refusals.push_back(name);
  }

  void use(std::vector<request_rule> rules) {
    auto of_sandbox = authority::make(sandbox);
    made.use(*rule_set::make(std::move(rules)), std::shared_ptr<authority>{std::move(*of_sandbox)});
  }
  /// A client's connection for that name. Null in `way`: it did not come to TLS.
  struct client {
    std::shared_ptr<stream> way;
    std::unique_ptr<http2_connection> many;
    std::unique_ptr<outgoing> one;

    /// What the request is made with.
    outgoing& next() {
      if (many)
        one = many->begin();
      return *one;
    }
  };
  task<client> connect(const std::string& name, bool http2 = false, std::string sni = {}) {
    auto both = pair_of_sockets();
    asio::co_spawn(
      io,
      [this, name, socket = std::move(both[1])]() mutable -> task<void> {
        served told_of;
        co_await made.serve(std::move(socket), name, 443, told_of);
        ++ended;
      },
      asio::detached);
    client made_client;
    made_client.way = std::make_shared<stream>(io, std::move(both[0]));
    streams_.push_back(made_client.way);
    const auto trusted = make_client_context(sandbox.certificate);
    const auto ok =
      co_await made_client.way->connect_tls(**trusted, sni.empty() ? name : sni, 5s, http2);
    if (!ok) {
      why = ok.reason().message;
      made_client.way = nullptr;
    } else if (made_client.way->protocol() == "h2") {
      made_client.many = std::make_unique<http2_connection>(*made_client.way);
      asio::co_spawn(io, made_client.many->run(), asio::detached);
    } else {
      made_client.one = make_http1_outgoing(*made_client.way);
    }
    co_return made_client;
  }
  void run(std::function<task<void>()> work) { REQUIRE(run_until_done(io, std::move(work))); }

  asio::io_context io{1};
  const authority_text servers, sandbox;
  bool servers_speak_2 = true;
  std::map<std::string, std::string> certified; ///< The name in a server's certificate.
  std::map<std::string, bool> gone;
  std::vector<std::string> dialled, refusals;
  std::string why;
  int ended = 0;

private:
  task<void> serve(std::shared_ptr<stream> way, std::string name) {
    const auto context = signs_->context_for(name, now_s());
    const auto ok = co_await way->accept_tls(**context, 5s);
    if (ok && servers_speak_2 && way->protocol() == "h2")
      co_await serve_http2(*way, mirror_, 5s);
    else if (ok)
      co_await serve_http1(*way, mirror_, 5s);
    way->cut();
  }

  std::unique_ptr<authority> signs_;
  std::vector<std::shared_ptr<stream>> streams_;
  const request_handler mirror_ = mirror;

public:
  runtime::broker::broker made;
};

request_match below(const std::string& path) {
  request_match match;
  match.path = text_match{text_match::kind::prefix, path};
  return match;
}

} // namespace

TEST_CASE("a request has the headers of its rule, in place of its own", "[broker]") {
  const bool http2 = GENERATE(false, true);
  CAPTURE(http2);
  small_internet it;
  it.use({{"a.example", below("/v1/"), transform_action{{{"Authorization", "Bearer secret"}}}}});
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example", http2);
    REQUIRE(client.way);
    const fields own{{"authorization", "Bearer mine"}, {"x-other", "1"}};
    const auto with = co_await ask(client.next(), head_of("POST", "/v1/x?y", 5, own), "hello");
    CHECK(with.status == 200);
    CHECK(with.body == "POST a.example /v1/x?y\nx-other: 1\nauthorization: Bearer secret\nhello");
    const auto without = co_await ask(client.next(), head_of("GET", "/v2", 0, own), "");
    CHECK(without.body == "GET a.example /v2\nauthorization: Bearer mine\nx-other: 1\n");
  });
  const auto figures = it.made.figures();
  REQUIRE(figures.size() == 1);
  CHECK(figures[0].requests == 1);
  CHECK(figures[0].bytes_out == 5);
  CHECK(figures[0].last_status == 200);
  CHECK(it.dialled == std::vector<std::string>{"a.example:443"}); // One for both.
}

TEST_CASE("an answer that a rule has goes nowhere else", "[broker]") {
  small_internet it;
  it.use({{"a.example", below("/open"), transform_action{}},
          {"a.example", {}, respond_action{403, {{"X-Why", "rule"}}, "not here"}}});
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example", true);
    const auto no = co_await ask(client.next(), head_of("GET", "/closed"), "");
    CHECK(no.status == 403);
    CHECK(no.body == "not here");
    CHECK(it.dialled.empty());
    const auto yes = co_await ask(client.next(), head_of("GET", "/open"), "");
    CHECK(yes.status == 200);
  });
}

TEST_CASE("a request that is forwarded says whom it was for, and nobody can pretend that",
          "[broker]") {
  small_internet it;
  it.use({{"a.example", {}, forward_action{"https://proxy.example:8443/base"}}});
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example");
    const fields forged{{"vercel-forwarded-host", "evil.example"},
                        {"vercel-sandbox-oidc-token", "mine"},
                        {"x-own", "1"}};
    const auto said = co_await ask(client.next(), head_of("PUT", "/p?q=1", 2, forged), "ok");
    CHECK(said.status == 200);
    CHECK(said.body == "PUT proxy.example:8443 /base/p?q=1\nx-own: 1\n"
                       "vercel-forwarded-host: a.example\nvercel-forwarded-scheme: https\n"
                       "vercel-forwarded-port: 443\nvercel-forwarded-path: /p?q=1\n"
                       "vercel-sandbox-oidc-token: token for https://proxy.example:8443/base\nok");
  });
  CHECK(it.dialled == std::vector<std::string>{"proxy.example:8443"});
}

TEST_CASE("a connection is for one name alone", "[broker]") {
  const bool http2 = GENERATE(false, true);
  small_internet it;
  it.use({{"*", {}, transform_action{{{"x-key", "secret"}}}}});
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example", http2);
    for (const std::string other : {"b.example", "a.example:8443", "a.example.b.example"}) {
      auto head = head_of("GET", "/");
      head.authority = other;
      const auto said = co_await ask(client.next(), head, "");
      CHECK(said.status == 421);
    }
    auto head = head_of("GET", "/");
    head.authority = "A.Example:443";
    const auto good = co_await ask(client.next(), head, "");
    CHECK(good.status == 200);
    CHECK(good.body.find("x-key: secret") != std::string::npos);
  });
  CHECK(it.refusals.size() == 3);
}

TEST_CASE("a server with another certificate, or none, is 502 with a sentence", "[broker]") {
  small_internet it;
  it.use({{"a.example", {}, transform_action{{{"x-key", "secret"}}}}});
  const bool gone = GENERATE(false, true);
  if (gone)
    it.gone["a.example"] = true;
  else
    it.certified["a.example"] = "b.example";
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example");
    const auto said = co_await ask(client.next(), head_of("GET", "/"), "");
    CHECK(said.status == 502);
    CHECK(said.body == (gone ? "a.example: there is nobody at that port\n"
                             : "a.example: the certificate of a.example is not good: hostname "
                               "mismatch\n"));
  });
}

TEST_CASE("rules that change end what was opened under the old ones within a second", "[broker]") {
  small_internet it;
  it.use({{"a.example", {}, transform_action{{{"x-key", "old"}}}}});
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example", true);
    const auto before = co_await ask(client.next(), head_of("GET", "/"), "");
    CHECK(before.body.find("x-key: old") != std::string::npos);
    it.use({{"a.example", {}, transform_action{{{"x-key", "new"}}}}});
    auto later = co_await it.connect("a.example", true);
    const auto after = co_await ask(later.next(), head_of("GET", "/"), "");
    CHECK(after.body.find("x-key: new") != std::string::npos);
    const bool gone = co_await until(it.io, [&] { return it.ended > 0; });
    CHECK(gone);
    CHECK(it.ended == 1);
    const auto still = co_await ask(later.next(), head_of("GET", "/"), "");
    CHECK(still.status == 200);
  });
}

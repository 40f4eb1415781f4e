// The broker between a client that trusts its sandbox's authority and servers that it dials, over
// TLS and sockets of the test's own.
#include "runtime/broker/broker.hpp"
#include "runtime/broker/http1.hpp"
#include "runtime/broker/http2.hpp"
#include "tests/support/broker_talk.hpp"
#include "tests/support/catch.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <openssl/ssl.h>

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
    if (token_throws)
      throw std::runtime_error("a bug");
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
  bool servers_speak_2 = true, token_throws = false;
  std::int64_t certified_at = now_s();
  bool other_authority = false;    ///< One that nobody trusts signs for servers.
  request_handler serves = mirror; ///< What a server does.
  std::size_t secured = 0;         ///< Connections that came to TLS.
  std::vector<std::shared_ptr<stream>> server_ways;
  std::map<std::string, std::string> certified; ///< The name in a server's certificate.
  std::map<std::string, bool> gone;
  std::vector<std::string> dialled, refusals;
  std::string why;
  int ended = 0;

private:
  task<void> serve(std::shared_ptr<stream> way, std::string name) {
    const auto stranger = authority::make(sandbox);
    authority& by = other_authority ? **stranger : *signs_;
    const auto context = by.context_for(name, certified_at);
    const auto offers_2 = servers_speak_2;
    if (!offers_2)
      SSL_CTX_set_alpn_select_cb(context->get(), nullptr, nullptr);
    const auto ok = co_await way->accept_tls(**context, 5s);
    if (ok) {
      ++secured;
      server_ways.push_back(way);
    }
    if (ok && offers_2 && way->protocol() == "h2")
      co_await serve_http2(*way, serves, 5s);
    else if (ok)
      co_await serve_http1(*way, serves, 5s);
    way->cut();
  }

  std::unique_ptr<authority> signs_;
  std::vector<std::shared_ptr<stream>> streams_;

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

TEST_CASE("a certificate that has run out, or that nobody knows, is 502 with a sentence",
          "[broker]") {
  small_internet it;
  it.use({{"a.example", {}, transform_action{{{"x-key", "secret"}}}}});
  const bool expired = GENERATE(true, false);
  std::string heard;
  it.serves = [&](incoming& in) -> task<exchanged> {
    heard += in.head.target;
    co_return co_await mirror(in);
  };
  if (expired)
    it.certified_at = now_s() - 40 * 86'400;
  else
    it.other_authority = true;
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example");
    const auto said = co_await ask(client.next(), head_of("GET", "/"), "");
    CHECK(said.status == 502);
    CHECK(said.body.starts_with("a.example: the certificate of a.example is not good: "));
    if (expired)
      CHECK(said.body.find("certificate has expired") != std::string::npos);
  });
  CHECK(heard.empty());
}

TEST_CASE("a path that can be read as another is refused where a rule looks at paths", "[broker]") {
  const bool http2 = GENERATE(false, true);
  CAPTURE(http2);
  const std::vector<std::string> unclear{
    "/v1/../v2",   "/v1/./x", "/v1/..",         "/v1/%2e%2e/v2", "/v1/%2E./v2", "/v1//x",
    "//v1",        "/v1%2fx", "/v1%5Cx",        "/v1\\x",        "/v1/%00",     "/v1/%0d%0a",
    "/v1/..;a/v2", "/v1/%zz", "/v1/%252e%252e", "/v1%252fx",     "/v1/%",       "/v1/%2"};
  small_internet it;
  it.use({{"a.example", below("/v1/"), transform_action{{{"x-key", "secret"}}}},
          {"b.example", {}, transform_action{{{"x-key", "secret"}}}}});
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example", http2);
    for (const auto& path : unclear) {
      CAPTURE(path);
      const auto said = co_await ask(client.next(), head_of("GET", path), "");
      CHECK(said.status == 400);
      CHECK(said.body.starts_with("The path has "));
    }
    CHECK(it.dialled.empty());
    for (const std::string path : {"/v1/x", "/%76%31/x", "/v1/%78?../.", "/v1/a%20b/"}) {
      CAPTURE(path);
      const auto said = co_await ask(client.next(), head_of("GET", path), "");
      CHECK(said.body == "GET a.example " + path + "\nx-key: secret\n");
    }
    auto other = co_await it.connect("b.example", http2);
    for (const auto& path : unclear) {
      auto head = head_of("GET", path);
      head.authority = "b.example";
      const auto said = co_await ask(other.next(), head, "");
      CHECK(said.body == "GET b.example " + path + "\nx-key: secret\n");
    }
  });
}

TEST_CASE("rules see a method without regard to case, and TRACE is refused", "[broker]") {
  const bool http2 = GENERATE(false, true);
  small_internet it;
  request_match gets;
  gets.methods = {"GET"};
  it.use({{"a.example", gets, transform_action{{{"x-key", "secret"}}}}});
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example", http2);
    const auto small = co_await ask(client.next(), head_of("get", "/"), "");
    CHECK(small.body == "get a.example /\nx-key: secret\n");
    const auto trace = co_await ask(client.next(), head_of("TRACE", "/"), "");
    CHECK(trace.status == 405);
  });
}

TEST_CASE("a trailer says no header that a rule sets", "[broker]") {
  const bool http2 = GENERATE(false, true), forwards = GENERATE(false, true);
  small_internet it;
  fields heard;
  it.serves = [&](incoming& in) -> task<exchanged> {
    for (;;) {
      const auto some = co_await in.body();
      if (!some)
        co_return exchanged{};
      if (!*some)
        break;
    }
    heard = in.trailers();
    response_head said;
    said.status = 200;
    co_return co_await answer(in, said, "ok");
  };
  if (forwards)
    it.use({{"a.example", {}, forward_action{"https://proxy.example"}}});
  else
    it.use({{"a.example", {}, transform_action{{{"X-Key", "secret"}}}}});
  const std::string own = forwards ? "vercel-sandbox-oidc-token" : "x-key";
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example", http2);
    const fields trailers{{own, "mine"}, {"x-sum", "5"}};
    const auto said =
      co_await ask(client.next(), head_of("POST", "/", std::nullopt), "hello", trailers);
    CHECK(said.status == 200);
  });
  CHECK(heard == fields{{"x-sum", "5"}});
}

TEST_CASE("a kept connection that its server has ended is not used", "[broker]") {
  small_internet it;
  it.servers_speak_2 = false;
  it.use({{"a.example", {}, transform_action{{{"x-key", "secret"}}}}});
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example");
    const auto one = co_await ask(client.next(), head_of("POST", "/1", 2), "ok");
    CHECK(one.status == 200);
    const auto two = co_await ask(client.next(), head_of("POST", "/2", 2), "ok");
    CHECK(two.status == 200);
    CHECK(it.dialled.size() == 1);
    it.server_ways.front()->cut();
    const auto three = co_await ask(client.next(), head_of("POST", "/3", 2), "ok");
    CHECK(three.status == 200);
    CHECK(it.dialled.size() == 2);
  });
}

TEST_CASE("a request is sent again only if that does no harm", "[broker]") {
  const std::string method = GENERATE("GET", "POST", "PUT", "PATCH", "DELETE");
  const std::string body = GENERATE("", "ok");
  CAPTURE(method, body);
  small_internet it;
  it.servers_speak_2 = false;
  it.use({{"a.example", {}, transform_action{{{"x-key", "secret"}}}}});
  int heard = 0;
  it.serves = [&](incoming& in) -> task<exchanged> {
    if (in.head.target == "/first")
      co_return co_await mirror(in);
    if (++heard == 1)
      co_return exchanged{}; // The connection ends without a word.
    co_return co_await mirror(in);
  };
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example");
    const auto first = co_await ask(client.next(), head_of("GET", "/first"), "");
    CHECK(first.status == 200);
    const auto said = co_await ask(client.next(), head_of(method, "/", body.size()), body);
    const bool again = body.empty() && is_idempotent(method);
    CHECK(said.status == (again ? 200 : 502));
    CHECK(heard == (again ? 2 : 1));
    // A connection that is new is no excuse.
    heard = 0;
    auto other = co_await it.connect("a.example");
    for (const auto& each : it.server_ways)
      each->cut();
    const auto fresh = co_await ask(other.next(), head_of("GET", "/"), "");
    CHECK(fresh.status == 502);
    CHECK(heard == 1);
  });
}

TEST_CASE("dials to one host are joined, and full connections are passed over", "[broker]") {
  small_internet it;
  it.use({{"a.example", {}, transform_action{{{"x-key", "secret"}}}}});
  std::size_t running = 0;
  bool released = false;
  it.serves = [&](incoming& in) -> task<exchanged> {
    ++running;
    const bool came = co_await until(it.io, [&] { return released; });
    CHECK(came);
    co_return co_await mirror(in);
  };
  it.run([&]() -> task<void> {
    auto one = co_await it.connect("a.example", true);
    auto two = co_await it.connect("a.example", true);
    std::vector<std::unique_ptr<outgoing>> all;
    const auto ask_many = [&](small_internet::client& from, int count) -> task<void> {
      for (int i = 0; i < count; ++i) {
        all.push_back(from.many->begin());
        const auto ok = co_await all.back()->begin(head_of("GET", "/"));
        CHECK(ok);
      }
    };
    co_await ask_many(one, 90);
    const bool some = co_await until(it.io, [&] { return running == 90; });
    CHECK(some);
    CHECK(it.dialled.size() == 1);
    co_await ask_many(two, 90);
    const bool most = co_await until(it.io, [&] { return running == 180; });
    CHECK(most);
    CHECK(it.dialled.size() == 2);
    released = true;
    for (const auto& each : all) {
      const auto said = co_await each->answer();
      REQUIRE(said);
      CHECK(said->status == 200);
    }
  });
}

TEST_CASE("dials that were joined are each request's own if the server has HTTP/1.1", "[broker]") {
  const bool gone = GENERATE(false, true);
  small_internet it;
  it.servers_speak_2 = false;
  it.gone["a.example"] = gone;
  if (!gone)
    it.gone.clear();
  it.use({{"a.example", {}, transform_action{{{"x-key", "secret"}}}}});
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example", true);
    std::vector<std::unique_ptr<outgoing>> all;
    for (int i = 0; i < 20; ++i) {
      all.push_back(client.many->begin());
      const auto ok = co_await all.back()->begin(head_of("GET", "/"));
      CHECK(ok);
    }
    for (const auto& each : all) {
      const auto said = co_await each->answer();
      REQUIRE(said);
      CHECK(said->status == (gone ? 502 : 200));
    }
    CHECK(it.dialled.size() <= 20);
  });
}

TEST_CASE("connections to one host have a ceiling", "[broker]") {
  small_internet it;
  it.servers_speak_2 = false;
  it.use({{"a.example", {}, transform_action{{{"x-key", "secret"}}}}});
  std::size_t running = 0;
  bool released = false;
  it.serves = [&](incoming& in) -> task<exchanged> {
    ++running;
    const bool came = co_await until(it.io, [&] { return released; });
    CHECK(came);
    co_return co_await mirror(in);
  };
  it.run([&]() -> task<void> {
    auto one = co_await it.connect("a.example", true);
    auto two = co_await it.connect("a.example", true);
    std::vector<std::unique_ptr<outgoing>> all;
    for (auto* from : {&one, &two})
      for (int i = 0; i < 64; ++i) {
        all.push_back(from->many->begin());
        const auto ok = co_await all.back()->begin(head_of("GET", "/"));
        CHECK(ok);
      }
    const bool full = co_await until(it.io, [&] { return running == 128; });
    CHECK(full);
    const auto more = one.many->begin();
    const auto no = co_await ask(*more, head_of("GET", "/"), "");
    CHECK(no.status == 503);
    CHECK(it.dialled.size() == 128);
    released = true;
    for (const auto& each : all) {
      const auto said = co_await each->answer();
      REQUIRE(said);
      CHECK(said->status == 200);
    }
    const auto later = one.many->begin(); // Places came back.
    const auto good = co_await ask(*later, head_of("GET", "/"), "");
    CHECK(good.status == 200);
  });
}

TEST_CASE("a client that goes ends its request at the server, over TLS", "[broker]") {
  const bool http2 = GENERATE(false, true), server_2 = GENERATE(false, true);
  CAPTURE(http2, server_2);
  small_internet it;
  it.servers_speak_2 = server_2;
  it.use({{"a.example", {}, transform_action{{{"x-key", "secret"}}}}});
  bool began = false, gone = false;
  it.serves = [&](incoming& in) -> task<exchanged> {
    for (;;) {
      const auto some = co_await in.body();
      if (!some || !*some)
        break;
    }
    began = true;
    gone = co_await in.wait_until_gone();
    co_return exchanged{};
  };
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example", http2);
    auto& to = client.next();
    const auto ok = co_await to.begin(head_of("GET", "/"));
    CHECK(ok);
    const bool there = co_await until(it.io, [&] { return began; });
    CHECK(there);
    if (http2)
      to.cut(); // One request of many.
    else
      client.way->cut();
    const bool ended = co_await until(it.io, [&] { return gone; });
    CHECK(ended);
  });
}

TEST_CASE("what throws gives back its place", "[broker]") {
  const bool http2 = GENERATE(false, true);
  small_internet it;
  it.token_throws = true;
  it.use({{"a.example", {}, forward_action{"https://proxy.example"}}});
  it.run([&]() -> task<void> {
    auto client = co_await it.connect("a.example", http2);
    const auto said = co_await ask(client.next(), head_of("GET", "/"), "");
    CHECK(said.status == 0);
    client.way->cut();
    const bool ended = co_await until(it.io, [&] { return it.made.open_connections() == 0; });
    CHECK(ended);
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

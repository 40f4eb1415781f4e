// Requests that pass the broker in HTTP/2, with either version on the other side. Client and server
// are of the same code: what others speak is tested with their programs.
#include "runtime/broker/condition.hpp"
#include "runtime/broker/http2.hpp"
#include "tests/support/broker_talk.hpp"
#include "tests/support/catch.hpp"

#include <functional>
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

/// A server that says what it has heard.
task<exchanged> echo(incoming& in) {
  std::string body;
  for (;;) {
    auto next = co_await in.body();
    if (!next)
      co_return exchanged{};
    if (!*next)
      break;
    body += **next;
  }
  response_head said;
  said.status = 200;
  said.rest = {
    {"x-method", in.head.method}, {"x-target", in.head.target}, {"x-authority", in.head.authority}};
  if (const auto* cookie = find(in.head.rest, "cookie"))
    said.rest.push_back({"x-cookie", *cookie});
  said.body_bytes = std::nullopt;
  const auto trailers = in.trailers();
  auto ok = co_await in.answer(said);
  if (ok && !body.empty())
    ok = co_await in.send(body);
  if (ok)
    ok = co_await in.end(trailers);
  co_return exchanged{200, static_cast<bool>(ok)};
}

/// A client, the broker and a server, each with the version that is said.
class chain {
public:
  chain(bool client_speaks_2, bool server_speaks_2, request_handler origin = echo)
      : origin_(std::move(origin)) {
    auto near = pair_of_sockets(), far = pair_of_sockets();
    client_.emplace(io, std::move(near[0]));
    in_.emplace(io, std::move(near[1]));
    out_.emplace(io, std::move(far[0]));
    server_.emplace(io, std::move(far[1]));
    if (server_speaks_2) {
      upstream_ = std::make_unique<http2_connection>(*out_);
      spawn(upstream_->run());
      spawn(serve_http2(*server_, origin_, 5s));
    } else {
      single_ = make_http1_outgoing(*out_);
      spawn(serve_http1(*server_, origin_, 5s));
    }
    if (client_speaks_2) {
      requests = std::make_unique<http2_connection>(*client_);
      spawn(requests->run());
      spawn(serve_http2(*in_, pass_, 5s));
    } else {
      one = make_http1_outgoing(*client_);
      spawn(serve_http1(*in_, pass_, 5s));
    }
  }
  ~chain() {
    for (auto* each : {&client_, &in_, &out_, &server_})
      (*each)->cut();
    io.restart();
    io.run();
  }

  void spawn(task<void> what) { asio::co_spawn(io, std::move(what), asio::detached); }
  void run(std::function<task<void>()> work) { REQUIRE(run_until_done(io, std::move(work))); }
  std::unique_ptr<outgoing> request() { return requests->begin(); }

  asio::io_context io{1};
  std::unique_ptr<http2_connection> requests;
  std::unique_ptr<outgoing> one;
  std::vector<unsigned> passed;

private:
  request_handler origin_;
  request_handler pass_ = [this](incoming& in) -> task<exchanged> {
    std::unique_ptr<outgoing> made;
    if (upstream_)
      made = upstream_->begin();
    outgoing* const to = upstream_ ? made.get() : single_.get();
    if (to == nullptr)
      co_return co_await refuse(in, 502, "there is no connection");
    auto done = co_await exchange(in, in.head, *to);
    if (!done)
      co_return co_await refuse(in, 502, done.reason().message);
    passed.push_back(done->status);
    co_return *done;
  };
  std::optional<stream> client_, in_, out_, server_;
  std::unique_ptr<http2_connection> upstream_;
  std::unique_ptr<outgoing> single_;
};

std::string value_of(const told& of, const std::string& name) {
  const auto* value = find(of.head, name);
  return value == nullptr ? "" : *value;
}

} // namespace

TEST_CASE("a request and its answer pass between all versions", "[broker]") {
  const bool client_2 = GENERATE(false, true), server_2 = GENERATE(false, true);
  CAPTURE(client_2, server_2);
  chain it{client_2, server_2};
  it.run([&]() -> task<void> {
    for (int i = 0; i < 3; ++i) {
      std::unique_ptr<outgoing> made;
      if (client_2)
        made = it.request();
      outgoing& to = client_2 ? *made : *it.one;
      auto head = head_of("POST", "/p?q=" + std::to_string(i), std::nullopt);
      head.takes_trailers = true;
      head.rest = fields{{"cookie", "a=1"}, {"cookie", "b=2"}};
      if (!client_2)
        head.rest = fields{{"cookie", "a=1; b=2"}};
      const fields trailers{{"x-sum", "5"}};
      const auto said = co_await ask(to, head, "hello", trailers);
      CHECK(said.why == "");
      CHECK(said.status == 200);
      CHECK(said.body == "hello");
      CHECK(value_of(said, "x-method") == "POST");
      CHECK(value_of(said, "x-target") == "/p?q=" + std::to_string(i));
      CHECK(value_of(said, "x-authority") == "a.example");
      CHECK(value_of(said, "x-cookie") == "a=1; b=2");
      CHECK(said.trailers == trailers);
    }
  });
  CHECK(it.passed == std::vector<unsigned>{200, 200, 200});
}

TEST_CASE("large bodies pass, and one that is not taken keeps no other waiting", "[broker]") {
  const bool server_2 = GENERATE(false, true);
  CAPTURE(server_2);
  chain it{true, true};
  const std::string large(8 << 20, 'x');
  it.run([&]() -> task<void> {
    // Its body is asked for by nobody.
    const auto slow = it.request();
    auto begun = co_await slow->begin(head_of("POST", "/slow", std::nullopt));
    CHECK(begun);
    const auto ok1 = co_await slow->send(std::string(400'000, 'y'));
    CHECK(ok1);
    const auto ok2 = co_await slow->end({});
    CHECK(ok2);
    for (int i = 0; i < 3; ++i) {
      const auto to = it.request();
      const auto said = co_await ask(*to, head_of("PUT", "/", large.size()), large);
      CHECK(said.why == "");
      CHECK(said.body.size() == large.size());
    }
    slow->cut();
  });
}

TEST_CASE("many requests are under way at once", "[broker]") {
  chain it{true, true};
  it.run([&]() -> task<void> {
    std::vector<std::unique_ptr<outgoing>> all;
    for (int i = 0; i < 60; ++i) {
      all.push_back(it.request());
      REQUIRE(all.back());
      const auto ok3 = co_await all.back()->begin(head_of("GET", "/" + std::to_string(i)));
      CHECK(ok3);
    }
    for (auto at = all.rbegin(); at != all.rend(); ++at) {
      const auto said = co_await (*at)->answer();
      REQUIRE(said);
      CHECK(said->status == 200);
    }
  });
}

TEST_CASE("a request that is given up is given up at the server", "[broker]") {
  auto heard = std::make_shared<std::string>();
  chain it{true, true, [heard](incoming& in) -> task<exchanged> {
             *heard = "its head";
             for (;;) {
               auto next = co_await in.body();
               if (!next) {
                 *heard = next.reason().message;
                 co_return exchanged{};
               }
               if (!*next)
                 co_return exchanged{};
             }
           }};
  it.run([&]() -> task<void> {
    auto to = it.request();
    const auto ok4 = co_await to->begin(head_of("POST", "/", std::nullopt));
    CHECK(ok4);
    const auto ok5 = co_await to->send("some");
    CHECK(ok5);
    const bool came = co_await until(it.io, [&] { return *heard == "its head"; });
    CHECK(came);
    to.reset();
    const bool gone = co_await until(it.io, [&] { return *heard == "the request was reset"; });
    CHECK(gone);
    const auto again = it.request(); // The connection is good.
    REQUIRE(again);
    const auto ok6 = co_await again->begin(head_of("POST", "/", std::nullopt));
    CHECK(ok6);
  });
}

TEST_CASE("what is given up leaves the windows of a connection whole", "[broker]") {
  const std::string large(http2_window_bytes - 1000, 'x');
  chain it{true, true, [&](incoming& in) -> task<exchanged> {
             response_head said;
             said.status = 200;
             if (in.head.target == "/large")
               co_return co_await answer(in, said, large); // And looks at no body.
             co_return co_await echo(in);
           }};
  it.run([&]() -> task<void> {
    for (int i = 0; i < 10; ++i) { // Each has a fourth of the connection's window.
      INFO("an answer of which one piece is taken");
      const auto to = it.request();
      const auto ok = co_await to->begin(head_of("POST", "/large", large.size()));
      CHECK(ok);
      const auto sent = co_await to->send(large);
      CHECK(sent);
      const auto said = co_await to->answer();
      CHECK(said);
      const auto some = co_await to->body();
      CHECK(some);
      if (i % 2 == 0)
        to->cut();
      const auto more = co_await to->body();
      CHECK(static_cast<bool>(more) == (i % 2 != 0));
    }
    const auto to = it.request();
    const std::string whole(4 << 20, 'y');
    const auto said = co_await ask(*to, head_of("PUT", "/", whole.size()), whole);
    CHECK(said.why == "");
    CHECK(said.body.size() == whole.size());
  });
}

TEST_CASE("a piece of a body stays where it is when its stream ends", "[broker]") {
  bool ends = false;
  chain it{true, true, [&](incoming& in) -> task<exchanged> {
             response_head said;
             said.status = 200;
             said.body_bytes = std::nullopt;
             auto ok = co_await in.answer(said);
             ok = co_await in.send("a piece that is too long for a string's own room");
             const bool may = co_await until(it.io, [&] { return ends; });
             CHECK(may);
             co_return exchanged{}; // The stream is reset.
           }};
  it.run([&]() -> task<void> {
    const auto to = it.request();
    const auto ok = co_await to->begin(head_of("GET", "/"));
    CHECK(ok);
    const auto said = co_await to->answer();
    CHECK(said);
    const auto some = co_await to->body();
    REQUIRE(some);
    REQUIRE(*some);
    ends = true;
    const bool closed = co_await until(it.io, [&] { return it.requests->open_requests() == 0; });
    CHECK(closed);
    CHECK(**some == "a piece that is too long for a string's own room");
    const auto more = co_await to->body();
    CHECK_FALSE(more);
  });
}

TEST_CASE("an answer of the broker's own to HTTP/2 leaves the connection good", "[broker]") {
  chain it{true, false, [](incoming& in) -> task<exchanged> {
             response_head said;
             said.status = 403;
             co_return co_await answer(in, said, "not here");
           }};
  it.run([&]() -> task<void> {
    for (int i = 0; i < 3; ++i) {
      const auto to = it.request();
      const auto said = co_await ask(*to, head_of("POST", "/", 5), "hello");
      CHECK(said.status == 403);
      CHECK(said.body == "not here");
    }
    const auto to = it.request();
    const auto head = co_await ask(*to, head_of("HEAD", "/"), "");
    CHECK(head.status == 403);
    CHECK(head.body.empty());
  });
}

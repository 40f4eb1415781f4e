// Parts of the broker, alone.
#include "runtime/broker/http1_reader.hpp"
#include "runtime/broker/rule_set.hpp"
#include "tests/support/catch.hpp"

#include <string>
#include <vector>

using namespace insula;
using namespace insula::runtime::broker;
using event = http1_reader::event;

namespace {

/// What is read of a text that comes in pieces.
struct reading {
  http1_reader reader;
  std::string body, left;
  int heads = 0, ends = 0;
  bool refused = false;

  explicit reading(http1_reader::side of)
      : reader(of) {}

  void feed(std::string_view text, std::size_t piece) {
    while (!text.empty() && !refused) {
      left += text.substr(0, piece);
      text.remove_prefix(std::min(piece, text.size()));
      for (;;) {
        const auto step = reader.read(left);
        body += step.body;
        heads += step.what == event::head;
        ends += step.what == event::end;
        refused |= step.what == event::refused;
        left.erase(0, step.used);
        if (step.what == event::none || refused)
          break;
      }
    }
  }
};

/// The status with which a request is refused; 0: it is not.
unsigned refusal_of(const std::string& text, http1_reader::side of = http1_reader::side::requests) {
  unsigned first = 0;
  for (const std::size_t piece : {text.size(), std::size_t{1}, std::size_t{7}}) {
    reading all{of};
    all.feed(text, piece);
    const auto status = all.refused ? all.reader.refusal_status() : 0;
    if (piece == text.size())
      first = status;
    CHECK(status == first);
  }
  return first;
}

const std::string get = "GET / HTTP/1.1\r\n", host = "Host: a.example\r\n";

} // namespace

TEST_CASE("requests are read one after the other, in pieces of any size", "[broker]") {
  const std::string text =
    "POST /path?q=1 HTTP/1.1\r\nHost: A.example:443\r\nX-Word:  two words \r\n"
    "Content-Length: 5\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\n\r\nhello"
    "PUT / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
    "TE: trailers\r\n\r\n3;ext=\"1\"\r\nabc\r\n00A\r\n0123456789\r\n0\r\nX-Sum: 7\r\nHost: "
    "b\r\n\r\n"
    "GET https://a.example/whole?x HTTP/1.1\r\nhost: a.example\r\n\r\n";
  for (const std::size_t piece : {text.size(), std::size_t{1}, std::size_t{3}, std::size_t{50}}) {
    reading all{http1_reader::side::requests};
    all.feed(text, piece);
    CHECK_FALSE(all.refused);
    CHECK(all.heads == 3);
    CHECK(all.ends == 3);
    CHECK(all.body == "helloabc0123456789");
    CHECK(all.left.empty());
    CHECK(all.reader.request().target == "/whole?x");
    CHECK(all.reader.request().authority == "a.example");
    CHECK(all.reader.is_between_messages());
  }
  reading one{http1_reader::side::requests};
  one.feed(text.substr(0, text.find("PUT")), 1000);
  const auto& head = one.reader.request();
  CHECK(head.method == "POST");
  CHECK(head.path() == "/path");
  CHECK(head.query() == "q=1");
  CHECK(head.authority == "A.example:443");
  CHECK(head.body_bytes == 5);
  CHECK(head.rest == fields{{"x-word", "two words"}});
  CHECK_FALSE(one.reader.closes());
  one.feed(text.substr(text.find("PUT"), text.find("GET") - text.find("PUT")), 1000);
  CHECK(one.reader.request().expects_continue);
  CHECK(one.reader.request().takes_trailers);
  CHECK(one.reader.trailers() == fields{{"x-sum", "7"}});
}

TEST_CASE("what two readers could take for two messages is refused", "[broker]") {
  const std::string post = "POST / HTTP/1.1\r\n" + host;
  CHECK(refusal_of(post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na") == 400);
  CHECK(refusal_of(post + "Content-Length: 1, 1\r\n\r\na") == 400);
  CHECK(refusal_of(post + "Content-Length: +1\r\n\r\na") == 400);
  CHECK(refusal_of(post + "Content-Length: 0x1\r\n\r\na") == 400);
  CHECK(refusal_of(post + "Content-Length: 99999999999999999999\r\n\r\na") == 400);
  CHECK(refusal_of(post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") ==
        400);
  CHECK(refusal_of(post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n") ==
        400);
  CHECK(refusal_of(post + "Transfer-Encoding: gzip, chunked\r\n\r\n") == 501);
  CHECK(refusal_of(post + "Transfer-Encoding: xchunked\r\n\r\n") == 501);
  CHECK(refusal_of(post + "Transfer-Encoding : chunked\r\n\r\n") == 400);
  CHECK(refusal_of(post + "Transfer-Encoding:\r\n chunked\r\n\r\n") == 400);
  CHECK(refusal_of(post + "X: 1\r\n folded\r\n\r\n") == 400);
  CHECK(refusal_of(post + "X: a\nContent-Length: 5\r\n\r\n") == 400);
  CHECK(refusal_of(post + "X: a\rb\r\n\r\n") == 400);
  CHECK(refusal_of(post + std::string("X: a\0b\r\n\r\n", 10)) == 400);
  CHECK(refusal_of("POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n") == 400);
  for (const std::string chunk : {"g\r\n", "\r\n", "-1\r\n", "0x1\r\na\r\n", "1\na\r\n", "1 1\r\na",
                                  "1\r\nab\r\n", "ffffffffffffffff\r\na", "1;a\x01\r\na\r\n"})
    CHECK(refusal_of(post + "Transfer-Encoding: chunked\r\n\r\n" + chunk) == 400);
  CHECK(refusal_of(get + host + host + "\r\n") == 400);
  CHECK(refusal_of(get + "\r\n") == 400);
  CHECK(refusal_of(get + "Host: a.example/b\r\n\r\n") == 400);
  CHECK(refusal_of(get + "Host: u@a.example\r\n\r\n") == 400);
  CHECK(refusal_of("GET https://b.example/ HTTP/1.1\r\n" + host + "\r\n") == 400);
  CHECK(refusal_of("GET /a b HTTP/1.1\r\n" + host + "\r\n") == 400);
  CHECK(refusal_of("GET  / HTTP/1.1\r\n" + host + "\r\n") == 400);
  CHECK(refusal_of("GET / HTTP/1.1 \r\n" + host + "\r\n") == 400);
  CHECK(refusal_of("GET /#f HTTP/1.1\r\n" + host + "\r\n") == 400);
  CHECK(refusal_of("GET https://a.example/#f HTTP/1.1\r\n" + host + "\r\n") == 400);
  CHECK(refusal_of("TRACE / HTTP/1.1\r\n" + host + "\r\n") == 405);
  CHECK(refusal_of("trace / HTTP/1.1\r\n" + host + "\r\n") == 405);
  CHECK(refusal_of("connect a.example:443 HTTP/1.1\r\n" + host + "\r\n") == 405);
  CHECK(refusal_of("GET a.example HTTP/1.1\r\n" + host + "\r\n") == 400);
  CHECK(refusal_of("CONNECT a.example:443 HTTP/1.1\r\n" + host + "\r\n") == 405);
  CHECK(refusal_of("GET / HTTP/2.0\r\n" + host + "\r\n") == 505);
  CHECK(refusal_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == 505);
  CHECK(refusal_of(get + host + "Expect: 200-maybe\r\n\r\n") == 417);
  CHECK(refusal_of("\r\n" + get + host + "\r\n") == 0);
  CHECK(refusal_of("\r\n\r\n" + get + host + "\r\n") == 400);
  CHECK(refusal_of("OPTIONS * HTTP/1.1\r\n" + host + "\r\n") == 0);
}

TEST_CASE("heads and trailers have ceilings", "[broker]") {
  CHECK(refusal_of(get + host + "X: " + std::string(http1_reader::max_head_bytes, 'x') +
                   "\r\n\r\n") == 431);
  std::string many = get + host;
  for (std::size_t i = 0; i < http1_reader::max_fields; ++i)
    many += "a: b\r\n";
  CHECK(refusal_of(many + "\r\n") == 431);
  CHECK(refusal_of(get + host + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: " +
                   std::string(http1_reader::max_trailer_bytes, 'x') + "\r\n\r\n") == 431);
  CHECK(refusal_of(get + host + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(300, 'x')) ==
        400);
}

TEST_CASE("an answer ends by its length, its chunks or its connection", "[broker]") {
  const auto answer = [](const std::string& text, const std::string& method = "GET") {
    reading all{http1_reader::side::responses};
    all.reader.expect_response_to(method);
    all.feed(text, 5);
    return all;
  };
  auto counted = answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
  CHECK(counted.body == "abc");
  CHECK(counted.ends == 1);
  auto open = answer("HTTP/1.1 200 OK\r\n\r\nabc");
  CHECK(open.ends == 0);
  CHECK(open.reader.closes());
  CHECK(open.reader.ended());
  CHECK(open.reader.read("").what == event::end);
  auto cut = answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc");
  CHECK_FALSE(cut.reader.ended());
  auto head = answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD");
  CHECK(head.ends == 1);
  CHECK(head.reader.response().body_bytes == 5);
  auto none = answer("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n");
  CHECK(none.ends == 1);
  auto interim = answer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
  CHECK(interim.ends == 2);
  auto sockets = answer("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
                        "websocket\r\n\r\n");
  CHECK(sockets.reader.response().upgrade == "websocket");
  const auto side = http1_reader::side::responses;
  CHECK(refusal_of("HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", side) == 502);
  CHECK(refusal_of("HTTP/1.1 20 x\r\n\r\n", side) == 502);
  CHECK(refusal_of("HTTP/1.1 600 x\r\n\r\n", side) == 502);
  CHECK(refusal_of("HTTP/2 200\r\n\r\n", side) == 502);
  CHECK(refusal_of("HTTP/1.1 200 x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", side) ==
        502);
}

TEST_CASE("a path is unclear where two servers could read two paths", "[broker]") {
  for (const std::string path : {"/", "/a", "/a/", "/a.b/..c/...", "/a%20b", "/%7euser", "/a;b=c",
                                 "/\xc3\xa9", "/a%3Fb", "/a%25b", "/a:b@c"})
    CHECK(why_unclear(path) == "");
  for (const std::string path :
       {"//",      "/a//b",  "/.",     "/..",   "/a/../b",      "/a/./",   "/%2e",  "/a/%2E%2e/",
        "/a/.%2e", "/a%2Fb", "/a%5cb", "/a\\b", "/a#b",         "/%23%0a", "/%7f",  "/%",
        "/%4",     "/%g0",   "/..;x/", "/.;",   "/%252e%252e/", "/%252F",  "/%255c"})
    CHECK(why_unclear(path) != "");
  CHECK(decoded_path("/%61%2Bb+c%") == "/a+b+c%");
}

TEST_CASE("heads are written as they are read", "[broker]") {
  request_head head;
  head.method = "POST";
  head.target = "/x?y";
  head.authority = "a.example";
  head.rest = {{"x-word", "two words"}, {"cookie", "a=b"}};
  head.body_bytes = std::nullopt;
  head.takes_trailers = true;
  reading back{http1_reader::side::requests};
  back.feed(http1_text(head) + http1_chunk_head(3) + "abc\r\n" + http1_last_chunk({{"x-t", "1"}}),
            9);
  CHECK_FALSE(back.refused);
  CHECK(back.ends == 1);
  CHECK(back.body == "abc");
  CHECK(back.reader.request().rest == head.rest);
  CHECK(back.reader.request().takes_trailers);
  CHECK(back.reader.trailers() == fields{{"x-t", "1"}});
  response_head said;
  said.status = 200;
  said.rest = {{"set-cookie", "a"}, {"set-cookie", "b"}};
  said.body_bytes = 2;
  reading other{http1_reader::side::responses};
  other.feed(http1_text(said, true) + "ok", 4);
  CHECK(other.ends == 1);
  CHECK(other.reader.response().rest == said.rest);
  CHECK(other.reader.closes());
}

TEST_CASE("of the rules of a domain the first that fits is applied", "[broker]") {
  using kind = text_match::kind;
  const auto rule = [](std::string domain, request_match match) {
    return request_rule{std::move(domain), std::move(match), transform_action{{{"x", "1"}}}};
  };
  const auto made = rule_set::make(
    {rule("a.example", {text_match{kind::prefix, "/v1/"}, {"GET", "PUT"}, {}, {}}),
     rule("a.example", {text_match{kind::regex, "^/v[0-9]+$"}, {}, {}, {}}),
     rule("a.example",
          {{}, {}, {{text_match{kind::exact, "k y"}, text_match{kind::exact, "v&"}}}, {}}),
     rule("*.a.example", {{},
                          {},
                          {},
                          {{text_match{kind::exact, "X-Key"}, text_match{kind::prefix, "place"}},
                           {text_match{kind::regex, "^X-O"}, std::nullopt}}}),
     rule("*", {text_match{kind::exact, "/all"}, {}, {}, {}})});
  REQUIRE(made);
  const auto& rules = **made;
  const auto found = [&](const std::string& name, const std::string& target, fields rest = {},
                         const std::string& method = "GET") {
    request_head head;
    head.method = method;
    head.target = target;
    head.rest = std::move(rest);
    const auto at = rules.find(name, head);
    return at ? static_cast<int>(*at) : -1;
  };
  CHECK(found("a.example", "/v1/x?q") == 0);
  CHECK(found("a.example", "/v1/x", {}, "POST") == -1);
  CHECK(found("a.example", "/v1/x", {}, "gEt") == 0);
  CHECK(found("a.example", "/%761/x") == 0); // As it is decoded.
  CHECK(found("a.example", "/v%322") == 1);
  CHECK(rules.looks_at_paths("a.example"));
  CHECK(rules.looks_at_paths("c.example"));
  CHECK(found("a.example", "/v22?x") == 1);
  CHECK(found("a.example", "/?a&k+y=v%26&b") == 2);
  CHECK(found("a.example", "/?k+y=v") == -1);
  CHECK(found("b.a.example", "/", {{"x-key", "placeholder"}, {"x-other", ""}}) == 3);
  CHECK(found("b.a.example", "/", {{"x-key", "placeholder"}}) == -1);
  CHECK(found("c.example", "/all") == 4);
  CHECK(found("c.example", "/All") == -1);
  const auto bad = rule_set::make({rule("a.example", {text_match{kind::regex, "(["}, {}, {}, {}})});
  REQUIRE_FALSE(bad);
  CHECK(bad.reason().code == errc::invalid_request);
}

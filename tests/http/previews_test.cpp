#include "http/preview/message.hpp"
#include "http/preview/token.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/http/inner_server.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/played_head.hpp"

#include <array>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace insula;
using namespace insula::test;
using namespace insula::http;
using namespace std::chrono_literals;

namespace {

std::string get(const std::string& target, const std::string& host, const std::string& more = {}) {
  return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n";
}

const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

http::server_options with_key() {
  http::server_options options;
  options.api_key = "s3cret";
  options.secret = "only here";
  return options;
}

std::string line(std::string_view name, std::string_view value) {
  return preview::answer_line(name, value, {"abc", 80, "/v1/sandbox/abc/port/80", "/"});
}

} // namespace

TEST_CASE("a name or a path names a port of a sandbox", "[http][preview]") {
  const auto host = [](std::string_view text) {
    const auto found = preview::address_of_host(text, "preview.example", "/");
    return found ? found->id + ":" + std::to_string(found->port) : std::string{};
  };
  CHECK(host("80-abc.preview.example") == "abc:80");
  CHECK(host("65535-ABC.Preview.Example:8787") == "abc:65535");
  for (const auto* none :
       {"", "preview.example", "abc.preview.example", "80-.preview.example", "-abc.preview.example",
        "0-abc.preview.example", "080-abc.preview.example", "65536-abc.preview.example",
        "+80-abc.preview.example", "80-a1c.preview.example", "80-abc.preview.example.",
        "80-abc.example", "x.80-abc.preview.example", "80-abc", "[::1]"})
    CHECK(host(none).empty());
  const auto path = [](std::string_view text) {
    const auto found = preview::address_of_path(text);
    return found ? found->id + ":" + std::to_string(found->port) + " " + found->prefix + " " +
                     found->path
                 : std::string{};
  };
  CHECK(path("/v1/sandbox/abc/port/80/") == "abc:80 /v1/sandbox/abc/port/80 /");
  CHECK(path("/v1/sandbox/abc/port/80//a/../%2e") == "abc:80 /v1/sandbox/abc/port/80 //a/../%2e");
  for (const auto* none :
       {"/", "/v1/sandbox/abc/port/80", "/v1/sandbox/abc/port//", "/v1/sandbox/abc/port/x/",
        "/v1/sandbox//port/80/", "/v1/sandbox/a1c/port/80/", "/v1/sandbox/abc/ports/80/"})
    CHECK(path(none).empty());
  CHECK(preview::label_of("abc", 80) == "80-abc");
  CHECK(preview::label_of(std::string(60, 'a'), 80) == "80-" + std::string(60, 'a'));
  CHECK(preview::label_of(std::string(61, 'a'), 80).empty());
}

TEST_CASE("a token is for one port of one sandbox, for a time", "[http][preview]") {
  const preview::token_time then{1'000'000s};
  const auto token = preview::sign_token("secret", "abc", 80, then);
  const auto good = [&](std::string_view secret, std::string_view id, std::uint16_t port,
                        const std::string& text, std::chrono::seconds before) {
    return preview::check_token(secret, id, port, text, then - before).has_value();
  };
  CHECK(good("secret", "abc", 80, token, 1s));
  CHECK_FALSE(good("secret", "abc", 80, token, 0s));
  CHECK_FALSE(good("secret", "abc", 81, token, 1s));
  CHECK_FALSE(good("secret", "abd", 80, token, 1s));
  CHECK_FALSE(good("other", "abc", 80, token, 1s));
  for (const auto& forged :
       {std::string{}, std::string{"."}, token + "a", token.substr(1), "9" + token,
        token.substr(0, token.size() - 1), std::string{"-1."}, token.substr(token.find('.'))})
    CHECK_FALSE(good("secret", "abc", 80, forged, 1s));
}

TEST_CASE("what is for one connection, or for the node, stays there", "[http][preview]") {
  played_head head{
    verb::get,
    "/v1/sandbox/abc/port/80/x",
    {{"Host", "node:8787"},
     {"Connection", "keep-alive, X-Hop"},
     {"X-Hop", "1"},
     {"Keep-Alive", "timeout=5"},
     {"Te", "trailers"},
     {"Accept", "*/*"},
     {"Accept", "text/plain"},
     {"X-Forwarded-For", "6.6.6.6"},
     {"x-forwarded-anything", "6"},
     {"Forwarded", "for=6.6.6.6"},
     {"X-Real-IP", "6.6.6.6"},
     {"Cookie", "a=1; insula-8787=t; b=2; insula-preview=p; __Host-insula=t; c=s3cret"},
     {"Authorization", "Bearer s3cret"},
     {"X-EXECD-ACCESS-TOKEN", "t"},
     {"X-Other", "the key is s3cret."},
     {"X-Insula-Preview-Token", "t"},
     {"OPEN-SANDBOX-API-KEY", "s3cret"}}};
  head.query = "a=1&insula_preview_token=t&b=2";
  const preview::address to{"abc", 80, "/v1/sandbox/abc/port/80", "/x"};
  const key_check key{"s3cret"};
  CHECK(preview::write_request(head, to, {"9.9.9.9", true, "r1", &key}) ==
        "GET /x?a=1&b=2 HTTP/1.1\r\n"
        "Host: node:8787\r\n"
        "Accept: */*\r\n"
        "Accept: text/plain\r\n"
        "Cookie: a=1; b=2\r\n"
        "X-Forwarded-For: 9.9.9.9\r\n"
        "X-Forwarded-Proto: https\r\n"
        "X-Forwarded-Host: node:8787\r\n"
        "X-Forwarded-Prefix: /v1/sandbox/abc/port/80\r\n"
        "X-Request-Id: r1\r\n\r\n");
  played_head other{verb::post, "/", {{"Host", "h"}, {"Authorization", "Basic x"}}};
  other.chunked = true;
  CHECK(preview::write_request(other, {"abc", 80, "", "/"}, {"9.9.9.9", false, "r1", nullptr}) ==
        "POST / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic x\r\nX-Forwarded-For: 9.9.9.9\r\n"
        "X-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\nX-Request-Id: r1\r\n"
        "Transfer-Encoding: chunked\r\n\r\n");
}

TEST_CASE("behind a prefix, an answer holds for no more than that", "[http][preview]") {
  CHECK(line("Set-Cookie", "a=1; Path=/x; Domain=node; HttpOnly") ==
        "Set-Cookie: a=1; HttpOnly; Path=/v1/sandbox/abc/port/80/x\r\n");
  CHECK(line("set-cookie", "a=1") == "set-cookie: a=1; Path=/v1/sandbox/abc/port/80/\r\n");
  CHECK(line("Location", "/login") == "Location: /v1/sandbox/abc/port/80/login\r\n");
  CHECK(line("Location", "//other/") == "Location: //other/\r\n");
  CHECK(line("Location", "https://other/") == "Location: https://other/\r\n");
  for (const auto* dropped : {"Clear-Site-Data",
                              "Service-Worker-Allowed",
                              "Transfer-Encoding",
                              "Strict-Transport-Security",
                              "Alt-Svc",
                              "Connection",
                              "NEL",
                              "Report-To",
                              "Reporting-Endpoints",
                              "Accept-CH",
                              "Critical-CH",
                              "Use-As-Dictionary",
                              "Set-Login",
                              "Secure-Session-Registration",
                              "Sec-Session-Registration",
                              "Origin-Agent-Cluster",
                              "Public-Key-Pins",
                              "Expect-CT",
                              "Origin-Trial",
                              "Speculation-Rules",
                              "Proxy-Authenticate",
                              "Supports-Loading-Mode",
                              "Attribution-Reporting-Register-Source",
                              "Observe-Browsing-Topics",
                              "Activate-Storage-Access",
                              "Something-New",
                              "",
                              "X-Accel-Redirect",
                              "x-sendfile",
                              "Insula-Node-Owner",
                              "X-Request-Id"})
    CHECK(line(dropped, "x").empty());
  for (const auto* kept : {"content-type",
                           "Content-Security-Policy",
                           "Content-Disposition",
                           "Cache-Control",
                           "ETag",
                           "last-modified",
                           "Vary",
                           "Access-Control-Allow-Origin",
                           "Accept-Ranges",
                           "Sec-WebSocket-Accept",
                           "X-Custom",
                           "X-Frame-Options",
                           "SourceMap",
                           "Link",
                           "Retry-After",
                           "Mcp-Session-Id",
                           "HX-Redirect",
                           "Server-Timing",
                           "Permissions-Policy",
                           "Server",
                           "Cross-Origin-Opener-Policy"})
    CHECK(line(kept, "x") == std::string{kept} + ": x\r\n");
  CHECK_FALSE(line("WWW-Authenticate", "Bearer realm=\"a\"").empty());
  for (const auto* challenge :
       {"Basic realm=\"a\"", "Bearer, bASIC realm=\"a\"", "Digest a=b", "Negotiate", "NTLM", ""})
    CHECK(line("WWW-Authenticate", challenge).empty());
}

TEST_CASE("behind a prefix, what leads to the server leads through the prefix", "[http][preview]") {
  const std::string prefix = "/v1/sandbox/abc/port/3000";
  const auto led = [&](std::string_view name, std::string_view value,
                       const std::string& host = "Node.example:8787", bool encrypted = false) {
    const auto told =
      preview::answer_line(name, value, {"abc", 3000, prefix, "/", false, host, encrypted});
    return told.substr(name.size() + 2, told.size() - name.size() - 4);
  };
  for (const auto* name : {"Location", "content-location"}) {
    for (const auto& [said, told] : {
           std::pair{"/login", "/login"},
           {"/", "/"},
           {"//node.example:8787/login", "/login"},
           {"http://node.example:8787/login?a=http://x/#y", "/login?a=http://x/#y"},
           {"HTTP://NODE.example:8787", "/"},
           {"http://node.example:8787?a", "/?a"},
           {"http://localhost:3000/login", "/login"},
           {"http://127.0.0.1:3000/login", "/login"},
           {"https://127.9.9.9:3000/login", "/login"},
           {"http://[::1]:3000/login", "/login"},
           {"http://0.0.0.0:3000/login", "/login"},
           // A server that knows of its prefix.
           {"/v1/sandbox/abc/port/3000/login", "/login"},
           {"/v1/sandbox/abc/port/3000", "/"},
           {"http://node.example:8787/v1/sandbox/abc/port/3000?a", "/?a"},
           {"/v1/sandbox/abc/port/30001", "/v1/sandbox/abc/port/30001"},
         })
      CHECK(led(name, said) == prefix + told);
    for (const auto* other :
         {"login", "?a", "", "../x", "https://other.example/login", "//other.example/",
          "http://node.example/login", "http://node.example:8788/", "http://localhost:3001/",
          "http://localhost/", "http://node.example:8787.evil.example/", "http:/login",
          "http://127.evil.example:3000/", "https://node.example:8787/login",
          "http://node.example:8787@evil.example/", "mailto:a@b", "ftp://node.example:8787/"})
      CHECK(led(name, other) == other);
  }
  // Over to TLS, or back, is no way that leads here again.
  for (const auto* same :
       {"https://node.example/x", "https://node.example:443/x", "//node.example/x"})
    CHECK(led("Location", same, "node.example", true) == prefix + "/x");
  for (const auto* other : {"http://node.example/x", "https://node.example:80/x"})
    CHECK(led("Location", other, "node.example", true) == other);
  CHECK(led("Location", "https://node.example/x", "node.example") == "https://node.example/x");
  CHECK(led("Location", "http://node.example:80/x", "node.example") == prefix + "/x");
  CHECK(led("Location", "http://[2001:db8::1]:8787/x", "[2001:db8::1]:8787") == prefix + "/x");
  CHECK(led("Location", "http://[2001:db8::2]:8787/x", "[2001:db8::1]:8787") ==
        "http://[2001:db8::2]:8787/x");
  CHECK(led("Location", "http:///x", "") == "http:///x");
  for (const auto& [said, told] : {
         std::pair{std::string{"5"}, std::string{"5"}},
         {"0; url=/a", "0; url=" + prefix + "/a"},
         {"0;URL = '/a'", "0;URL = '" + prefix + "/a'"},
         {"0, url=\"http://localhost:3000/a\" ", "0, url=\"" + prefix + "/a\" "},
         {"0; /a", "0; " + prefix + "/a"},
         {"0; url=a", "0; url=a"},
         {"0; url=https://other.example/", "0; url=https://other.example/"},
         {"0;", "0;"},
         {"0; url=", "0; url="},
         {"0; url='", "0; url='"},
       })
    CHECK(led("Refresh", said) == told);
  CHECK(led("Link", "</a.css>; rel=preload; title=\"</b>\", <c>, <http://localhost:3000/d>;x") ==
        "<" + prefix + "/a.css>; rel=preload; title=\"</b>\", <c>, <" + prefix + "/d>;x");
  CHECK(led("Link", "</a") == "</a");
  CHECK(led("Set-Cookie", "a=1; Path=" + prefix + "/x") == "a=1; Path=" + prefix + "/x");
  CHECK(led("Set-Cookie", "a=1; Path=" + prefix) == "a=1; Path=" + prefix + "/");
  // By name the server is asked by its own.
  CHECK(preview::answer_line("Location", "http://localhost:80/a", {"abc", 80, "", "/"}) ==
        "Location: http://localhost:80/a\r\n");
}

TEST_CASE("by name, an answer holds for that name alone", "[http][preview]") {
  const auto by_name = [](std::string_view name, std::string_view value) {
    return preview::answer_line(name, value, {"abc", 80, "", "/"});
  };
  CHECK(by_name("Set-Cookie", "a=1; Path=/x") == "Set-Cookie: a=1; Path=/x\r\n");
  for (const auto* domain : {"preview.example", ".preview.example", "PREVIEW.example", "example",
                             "localhost", "80-abc.preview.example", ""})
    CHECK(by_name("Set-Cookie", "a=1; dOmAiN = " + std::string{domain} + "; Secure") ==
          "Set-Cookie: a=1; Secure\r\n");
  CHECK(by_name("Set-Cookie", "a=domain=b") == "Set-Cookie: a=domain=b\r\n");
  CHECK(by_name("WWW-Authenticate", "Basic realm=\"a\"") ==
        "WWW-Authenticate: Basic realm=\"a\"\r\n");
  CHECK(by_name("NEL", "x") == "NEL: x\r\n");
  for (const auto* dropped :
       {"Alt-Svc", "X-Accel-Redirect", "X-Archive-Files", "X-LiteSpeed-Location",
        "X-Lighttpd-Send-File", "X-Lighttpd-Send-Tempfile", "X-Reproxy-File", "X-Reproxy-URL",
        "X-Sendfile", "x-sendfile2"}) {
    CHECK(by_name(dropped, "x").empty());
    CHECK(preview::answer_line(dropped, "x", {"abc", 80, "/v1/sandbox/abc/port/80", "/"}).empty());
  }
}

TEST_CASE("a server in a sandbox is reached by name and by path", "[http][preview]") {
  house h;
  inner_server server;
  client one{h.port()};
  one.send(get("/a?b=c", server.host() + ":8787", "X-Forwarded-For: 6.6.6.6\r\n"));
  auto inside = server.accept();
  const auto head = inside.head();
  CHECK(head.starts_with("GET /a?b=c HTTP/1.1\r\nHost: " + server.host() + ":8787\r\n"));
  CHECK(head.find("X-Forwarded-For: 127.0.0.1\r\n") != std::string::npos);
  CHECK(head.find("6.6.6.6") == std::string::npos);
  inside.send("HTTP/1.1 418 Teapot\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 3\r\n\r\ntea");
  CHECK(one.read_until("\r\n") == "HTTP/1.1 418 Teapot\r\n");
  CHECK(one.read_until("\r\n\r\n").find("X-A: 1\r\nX-A: 2\r\nContent-Length: 3\r\n") == 0);
  CHECK(one.read(3) == "tea");
  // On the same two connections, the other form.
  one.send(get(server.prefix() + "/x/", "localhost"));
  CHECK(inside.head().starts_with("GET /x/ HTTP/1.1\r\n"));
  inside.send("HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n");
  const auto moved = one.receive();
  CHECK(moved.status == 302);
  CHECK(moved.fields.at("location") == server.prefix() + "/y");
  CHECK(moved.fields.at("content-security-policy").starts_with("sandbox "));
  // And this node's own routes, still on that connection.
  one.send(get("/health", "localhost"));
  CHECK(one.receive().status == 200);
  one.send(get("/v1/sandbox/abc/network", "localhost"));
  CHECK(one.receive().status == 200);
  one.send(get("/z", server.host()));
  CHECK(inside.head().starts_with("GET /z"));
  inside.send(ok);
  CHECK(one.receive().body == "ok");
  CHECK_FALSE(server.is_asked(0ms));
}

TEST_CASE("bodies go both ways at once, of any form", "[http][preview]") {
  house h;
  inner_server server;
  client one{h.port()};
  const auto head = [&](const std::string& fields) {
    return "POST /up HTTP/1.1\r\nHost: " + server.host() + "\r\n" + fields + "\r\n";
  };
  SECTION("of a known length, with what follows it") {
    one.send(head("Content-Length: 6\r\n") + "\r\n\r\nab" + get("/next", server.host()));
    auto inside = server.accept();
    CHECK(inside.head().find("Content-Length: 6\r\n") != std::string::npos);
    CHECK(inside.read(6) == "\r\n\r\nab");
    inside.send(ok);
    CHECK(one.receive().body == "ok");
    CHECK(inside.head().starts_with("GET /next"));
    inside.send("HTTP/1.1 204 No Content\r\n\r\n");
    CHECK(one.receive().status == 204);
  }
  SECTION("in chunks, which are told anew") {
    one.send(head("Transfer-Encoding: chunked\r\n") + "3;x=y\r\nabc\r\n");
    auto inside = server.accept();
    CHECK(inside.head().find("Transfer-Encoding: chunked\r\n") != std::string::npos);
    CHECK(inside.read(8) == "3\r\nabc\r\n");
    one.send("1\r\nd\r\n0\r\n\r\n" + get("/next", server.host()));
    CHECK(inside.read_until("0\r\n\r\n") == "1\r\nd\r\n0\r\n\r\n");
    inside.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n");
    CHECK(one.read_until("\r\n\r\n").find("Transfer-Encoding: chunked\r\n") != std::string::npos);
    CHECK(one.chunk() == "he");
    inside.send("3\r\nllo\r\n0\r\n\r\n");
    CHECK(one.chunk() == "llo");
    CHECK(one.chunk().empty());
    CHECK(inside.head().starts_with("GET /next"));
    inside.send(ok);
    CHECK(one.receive().body == "ok");
  }
  SECTION("the answer comes while the request does") {
    one.send(head("Content-Length: 4\r\n") + "ab");
    auto inside = server.accept();
    inside.head();
    CHECK(inside.read(2) == "ab");
    inside.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nAB\r\n");
    one.read_until("\r\n\r\n");
    CHECK(one.chunk() == "AB");
    one.send("cd");
    CHECK(inside.read(2) == "cd");
    inside.send("2\r\nCD\r\n0\r\n\r\n");
    CHECK(one.chunk() == "CD");
    CHECK(one.chunk().empty());
  }
  SECTION("it is refused before it has come") {
    one.send(head("Content-Length: 1000000\r\n") + "ab");
    auto inside = server.accept();
    inside.head();
    inside.send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    inside.close();
    const auto got = one.receive();
    CHECK(got.status == 413);
    CHECK(got.fields.at("connection") == "close");
  }
  SECTION("it is asked for first") {
    one.send(head("Content-Length: 2\r\nExpect: 100-continue\r\n"));
    auto inside = server.accept();
    CHECK(inside.head().find("Expect") == std::string::npos);
    CHECK(one.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    one.send("ab");
    CHECK(inside.read(2) == "ab");
    inside.send(ok);
    CHECK(one.receive().body == "ok");
  }
  SECTION("an answer ends with its connection") {
    one.send(get("/", server.host()));
    auto inside = server.accept();
    inside.head();
    inside.send("HTTP/1.0 200 OK\r\n\r\nuntil the end");
    inside.close();
    const auto got = one.receive();
    CHECK(got.complete);
    CHECK(got.body == "until the end");
  }
  SECTION("chunks that are none") {
    for (const std::string chunks : {"zz\r\n", "2\nab\r\n0\r\n\r\n", "2;x\nab\r\n0\r\n\r\n",
                                     "2\r\nab\n0\r\n\r\n", "2\r\nabxx0\r\n\r\n"}) {
      CAPTURE(chunks);
      client each{h.port()};
      each.send(head("Transfer-Encoding: chunked\r\n") + chunks);
      auto inside = server.accept();
      CHECK(each.receive().status == 400);
      CHECK(each.at_end());
    }
  }
}

TEST_CASE("large bodies pass whole, both ways", "[http][preview]") {
  house h;
  inner_server server;
  constexpr std::size_t size = 40u << 20;
  std::string body(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    body[i] = static_cast<char>(i * 2'654'435'761u >> 24);
  std::thread echo{[&] {
    auto inside = server.accept();
    inside.head();
    inside.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n");
    for (std::size_t done = 0; done < size;) {
      const auto some = inside.read(std::min<std::size_t>(64 * 1024, size - done));
      if (some.empty() || !inside.send(some))
        break;
      done += some.size();
    }
  }};
  client one{h.port()};
  std::thread up{[&] {
    one.send("PUT / HTTP/1.1\r\nHost: " + server.host() +
             "\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n");
    one.send(body);
  }};
  one.read_until("\r\n\r\n");
  CHECK(one.read(size) == body);
  up.join();
  echo.join();
}

TEST_CASE("HEAD, 304 and HTTP/1.0 keep their forms", "[http][preview]") {
  house h;
  inner_server server;
  client one{h.port()};
  one.send("HEAD / HTTP/1.1\r\nHost: " + server.host() + "\r\n\r\n");
  auto inside = server.accept();
  inside.head();
  inside.send("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n");
  CHECK(one.receive(true).fields.at("content-length") == "7");
  one.send(get("/", server.host()));
  inside.head();
  inside.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 304 Not Modified\r\nETag: "
              "\"a\"\r\n\r\n");
  CHECK(one.receive(true).status == 103);
  const auto same = one.receive(true);
  CHECK(same.status == 304);
  CHECK(same.fields.at("etag") == "\"a\"");
  one.send("GET / HTTP/1.0\r\nHost: " + server.host() + "\r\n\r\n");
  inside.head();
  inside.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n\r\n");
  CHECK(one.read_until("\r\n\r\n").find("chunked") == std::string::npos);
  CHECK(one.read(10) == "he");
  CHECK(one.at_end());
}

TEST_CASE("fields behind a body pass, both ways", "[http][preview]") {
  house h{with_key()};
  inner_server server;
  client one{h.port()};
  const std::string key = "Authorization: Bearer s3cret\r\n";
  one.send("POST /up HTTP/1.1\r\nHost: " + server.host() + "\r\n" + key +
           "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\nTE: trailers, deflate\r\n"
           "Connection: TE, X-Hop\r\nX-Sum: early\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: "
           "6\r\nX-Hop: 1\r\nX-Forwarded-For: 6.6.6.6\r\nHost: other\r\nX-Secret: the key is "
           "s3cret\r\nCookie: insula=t; a=1\r\n\r\n");
  auto inside = server.accept();
  const auto head = inside.head();
  CHECK(head.find("\r\nTrailer: X-Sum\r\n") != std::string::npos);
  CHECK(head.find("\r\nConnection: TE\r\nTE: trailers\r\n") != std::string::npos);
  CHECK(head.find("\r\nX-Sum: early\r\n") != std::string::npos);
  CHECK(inside.read_until("\r\n\r\n") == "3\r\nabc\r\n0\r\nX-Sum: 6\r\nCookie: a=1\r\n\r\n");
  inside.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\nX-Sum: "
              "early\r\n\r\n2\r\nhe\r\n");
  const auto answer = one.read_until("\r\n\r\n");
  CHECK(answer.find("\r\nTrailer: X-Sum\r\n") != std::string::npos);
  CHECK(answer.find("\r\nX-Sum: early\r\n") != std::string::npos);
  CHECK(one.read(7) == "2\r\nhe\r\n");
  inside.send("0\r\nX-Sum: 1\r\nServer-Timing: a;dur=1\r\nX-Accel-Redirect: /x\r\n\r\n");
  CHECK(one.read_until("\r\n\r\n") == "0\r\nX-Sum: 1\r\nServer-Timing: a;dur=1\r\n\r\n");
  SECTION("not to HTTP/1.0, nor behind a body of a known length") {
    one.send("GET / HTTP/1.0\r\nHost: " + server.host() + "\r\n" + key + "\r\n");
    inside.head();
    inside.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\nX: "
                "1\r\n\r\n");
    one.read_until("\r\n\r\n");
    CHECK(one.read(10) == "he");
  }
  SECTION("behind a prefix only what is known") {
    one.send("GET " + server.prefix() + "/ HTTP/1.1\r\nHost: localhost\r\n" + key + "\r\n");
    inside.head();
    inside.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nNEL: 1\r\nX-Sum: "
                "2\r\nLocation: /a\r\n\r\n");
    one.read_until("\r\n\r\n");
    CHECK(one.read_until("\r\n\r\n") ==
          "0\r\nX-Sum: 2\r\nLocation: " + server.prefix() + "/a\r\n\r\n");
  }
}

TEST_CASE("early hints pass", "[http][preview]") {
  house h;
  inner_server server;
  client one{h.port()};
  one.send(get(server.prefix() + "/", "localhost"));
  auto inside = server.accept();
  inside.head();
  inside.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nNEL: x\r\n\r\n");
  // Before there is an answer.
  CHECK(one.read_until("\r\n\r\n") ==
        "HTTP/1.1 103 Early Hints\r\nLink: <" + server.prefix() + "/a.css>; rel=preload\r\n\r\n");
  inside.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early "
              "Hints\r\nX-A: 1\r\n\r\n" +
              ok);
  CHECK(one.read_until("\r\n\r\n") == "HTTP/1.1 102 Processing\r\n\r\n");
  CHECK(one.read_until("\r\n\r\n") == "HTTP/1.1 103 Early Hints\r\nX-A: 1\r\n\r\n");
  CHECK(one.receive().body == "ok");
  SECTION("with a body that is asked for first") {
    one.send("PUT /x HTTP/1.1\r\nHost: " + server.host() +
             "\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    inside.head();
    inside.send("HTTP/1.1 103 Early Hints\r\n\r\n");
    CHECK(one.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    CHECK(one.read_until("\r\n\r\n") == "HTTP/1.1 103 Early Hints\r\n\r\n");
    one.send("ab");
    CHECK(inside.read(2) == "ab");
    inside.send(ok);
    CHECK(one.receive().body == "ok");
  }
  SECTION("not to HTTP/1.0, which knows of none") {
    one.send("GET / HTTP/1.0\r\nHost: " + server.host() + "\r\n\r\n");
    inside.head();
    inside.send("HTTP/1.1 103 Early Hints\r\n\r\n" + ok);
    CHECK(one.receive().status == 200);
  }
  SECTION("but not without end") {
    one.send(get("/", server.host()));
    inside.head();
    std::string many;
    for (int i = 0; i < 40; ++i)
      many += "HTTP/1.1 103 Early Hints\r\n\r\n";
    inside.send(many);
    auto got = one.receive(true);
    for (int i = 0; i < 40 && got.status == 103; ++i)
      got = one.receive(true);
    CHECK(got.status == 502);
  }
}

TEST_CASE("a request that fails while a hint is being written is cut off", "[http][preview]") {
  http::server_options options;
  const bool stalls = GENERATE(false, true);
  if (stalls)
    options.time.progress = 3'000ms;
  house h{options};
  inner_server server;
  client one{h.port()};
  one.send("POST / HTTP/1.1\r\nHost: " + server.host() + "\r\nTransfer-Encoding: chunked\r\n\r\n");
  auto inside = server.accept();
  inside.head();
  const int node_end = other_end(one.fd());
  const int little = 4096;
  REQUIRE(::setsockopt(node_end, SOL_SOCKET, SO_SNDBUF, &little, sizeof little) == 0);
  const auto hints = large_hints();
  std::thread says{[&] { inside.send(hints); }};
  int full = 0; // So often in a row: a hint is on its way, and waits.
  CHECK(eventually([&] { return (full = takes_more(node_end) ? 0 : full + 1) == 25; }));
  one.send(stalls ? "1\r\nx\r\n" : "xyz\r\n");
  says.join();
  inside.read(1u << 20); // Until the request has failed.
  const auto got = one.read(2 * hints.size());
  CHECK(got.size() < hints.size());
  CHECK(is_nothing_but_hints(hints, got));
}

TEST_CASE("after an upgrade, bytes go both ways", "[http][preview]") {
  house h;
  inner_server server;
  client one{h.port()};
  one.send(get("/ws", server.host(),
               "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: "
               "k\r\nSec-WebSocket-Version: 13\r\nOrigin: http://" +
                 server.host() + "\r\n") +
           "early");
  auto inside = server.accept();
  const auto head = inside.head();
  CHECK(head.find("Connection: Upgrade\r\nUpgrade: websocket\r\n") != std::string::npos);
  CHECK(head.find("Sec-WebSocket-Key: k\r\n") != std::string::npos);
  inside.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: "
              "websocket\r\nSec-WebSocket-Accept: a\r\n\r\nhello");
  const auto answer = one.read_until("\r\n\r\n");
  CHECK(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"));
  CHECK(answer.find("Connection: Upgrade\r\nUpgrade: websocket\r\n") != std::string::npos);
  CHECK(answer.find("Sec-WebSocket-Accept: a\r\n") != std::string::npos);
  CHECK(one.read(5) == "hello");
  CHECK(inside.read(5) == "early");
  one.send("\0\1\2");
  CHECK(inside.send("down"));
  CHECK(one.read(4) == "down");
  SECTION("until the server ends") {
    inside.close();
    CHECK(one.at_end());
  }
  SECTION("until the client ends, and the server after it") {
    ::shutdown(one.fd(), SHUT_WR);
    inside.read_until("\xff");
    CHECK(inside.at_end());
    CHECK(inside.send("bye"));
    CHECK(one.read(3) == "bye");
    inside.close();
    CHECK(one.at_end());
  }
  SECTION("until the node ends") {
    std::thread stop{[&] { h.server().stop(5s); }};
    inside.read_until("\xff");
    CHECK(inside.at_end());
    stop.join();
  }
}

TEST_CASE("what is wrong with a server is said", "[http][preview]") {
  house h;
  std::uint16_t closed = 0;
  {
    inner_server gone;
    closed = gone.port();
  }
  const auto nobody = std::to_string(closed) + "-abc.localhost";
  client one{h.port()};
  SECTION("nobody listens") {
    one.send(get("/", nobody));
    const auto got = one.receive();
    CHECK(got.status == 502);
    CHECK(got.body == R"({"error":"nothing listens at port )" + std::to_string(closed) +
                        R"( in the sandbox","code":"port_not_listening"})");
    one.send(get("/", nobody, "Accept: text/html\r\n"));
    const auto page = one.receive();
    CHECK(page.status == 502);
    CHECK(page.fields.at("content-type").starts_with("text/html"));
    CHECK(page.body.find("http-equiv=\"refresh\"") != std::string::npos);
    one.send("POST / HTTP/1.1\r\nHost: " + nobody + "\r\nContent-Length: 2\r\n\r\n");
    const auto refused = one.receive();
    CHECK(refused.status == 502);
    CHECK(refused.fields.at("connection") == "close");
  }
  SECTION("the sandbox does not run") {
    h.plays().network_error = error{errc::sandbox_not_running, "no"};
    one.send(get("/", nobody));
    const auto got = one.receive();
    CHECK(got.status == 502);
    CHECK(got.body.find(R"("code":"sandbox_not_running")") != std::string::npos);
  }
  inner_server server;
  SECTION("it does not speak HTTP, or stops in mid-word") {
    for (const std::string said :
         {"hello\r\n\r\n", "", "HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 101 x\r\n\r\n",
          "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "HTTP/1.1 200 OK\r\nX: 1\nY: 2\r\n\r\n",
          "HTTP/1.1 200 OK\r\nX: 1\rY: 2\r\n\r\n", "HTTP/1.1 200 OK\r\nX : 1\r\n\r\n",
          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: x\r\n\r\n"}) {
      CAPTURE(said);
      one.send(get("/", server.host()));
      auto inside = server.accept();
      inside.head();
      inside.send(said);
      inside.close();
      const auto got = one.receive();
      CHECK(got.status == 502);
      CHECK(got.body.find(R"("code":"bad_answer")") != std::string::npos);
    }
  }
  SECTION("its answer is never complete, so it must not look so") {
    one.send(get("/", server.host()));
    auto inside = server.accept();
    inside.head();
    inside.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    inside.close();
    const auto got = one.receive();
    CHECK(got.status == 200);
    CHECK_FALSE(got.complete);
  }
  SECTION("it had closed what was idle") {
    one.send(get("/1", server.host()));
    auto first = server.accept();
    first.head();
    first.send(ok);
    CHECK(one.receive().body == "ok");
    first.close();
    one.send(get("/2", server.host()));
    auto second = server.accept();
    CHECK(second.head().starts_with("GET /2"));
    second.send(ok);
    CHECK(one.receive().body == "ok");
  }
  SECTION("it closes what was idle just when it is asked") {
    one.send(get("/1", server.host()));
    auto first = server.accept();
    first.head();
    first.send(ok);
    CHECK(one.receive().body == "ok");
    one.send(get("/2", server.host()));
    CHECK(first.head().starts_with("GET /2"));
    first.close();
    auto second = server.accept();
    CHECK(second.head().starts_with("GET /2"));
    second.send(ok);
    CHECK(one.receive().body == "ok");
  }
}

TEST_CASE("a client that leaves takes its request along", "[http][preview]") {
  house h;
  inner_server server;
  client one{h.port()};
  one.send(get("/", server.host()));
  auto inside = server.accept();
  inside.head();
  SECTION("before the answer") {
    one.close();
    CHECK(inside.at_end());
  }
  SECTION("while it is silent") {
    inside.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
    one.read_until("data: 1\n\n");
    one.close();
    CHECK(inside.at_end());
  }
}

TEST_CASE("a server that listens with IPv6 alone is found", "[http][preview]") {
  house h;
  inner_server server{true};
  client one{h.port()};
  one.send(get("/", server.host()));
  auto inside = server.accept();
  inside.head();
  inside.send(ok);
  CHECK(one.receive().body == "ok");
}

TEST_CASE("what is idle is given up, so that the sandbox can rest", "[http][preview]") {
  house h;
  inner_server server;
  client one{h.port()};
  one.send(get("/", server.host()));
  auto inside = server.accept();
  inside.head();
  inside.send(ok);
  CHECK(one.receive().body == "ok");
  CHECK(inside.at_end()); // After a few seconds.
}

TEST_CASE("with a key, a preview needs it, or a token", "[http][preview]") {
  house h{with_key()};
  inner_server server;
  const auto link = ask(h.port(), "POST", "/v1/sandbox/abc/preview",
                        R"({"port":)" + std::to_string(server.port()) + R"(,"expires_in_s":60})",
                        "Authorization: Bearer s3cret\r\n");
  REQUIRE(link.status == 200);
  const auto at = link.body.find(R"("token":")") + 9;
  const auto token = link.body.substr(at, link.body.find('"', at) - at);
  client one{h.port()};
  const auto passes = [&](const std::string& asked) {
    client each{h.port()};
    each.send(asked);
    auto inside = server.accept();
    const auto head = inside.head();
    CHECK(head.find(token) == std::string::npos);
    CHECK(head.find("s3cret") == std::string::npos);
    inside.send(ok);
    return each.receive().status == 200;
  };
  const auto refused = [&](const std::string& asked) {
    client each{h.port()};
    each.send(asked);
    const auto got = each.receive();
    return got.status == 401 && !server.is_asked(0ms);
  };
  for (const auto& [target, host] :
       {std::pair{std::string{"/"}, server.host()}, {server.prefix() + "/", "localhost"}}) {
    CAPTURE(target);
    CHECK(refused(get(target, host)));
    CHECK(refused(get(target, host, "Authorization: Bearer wrong\r\n")));
    CHECK(refused(get(target, host, "X-Insula-Preview-Token: 99999999999.aaaa\r\n")));
    CHECK(passes(get(target, host, "Authorization: Bearer s3cret\r\n")));
    CHECK(passes(get(target, host, "X-Insula-Preview-Token: " + token + "\r\n")));
    CHECK(passes(get(target, host, "Cookie: a=1; insula-preview=" + token + "\r\n")));
    CHECK(passes(get(target + "?a=1&insula_preview_token=" + token, host)));
  }
  // Of another port, or another sandbox.
  CHECK(refused(get("/", std::to_string(server.port() - 1) + "-abc.localhost",
                    "X-Insula-Preview-Token: " + token + "\r\n")));
  CHECK(refused(get("/", std::to_string(server.port()) + "-abd.localhost",
                    "X-Insula-Preview-Token: " + token + "\r\n")));
  // A browser gets it as a cookie, and an address without.
  one.send(get("//evil.example/?a=1&insula_preview_token=" + token + "&b=2", server.host(),
               "Accept: text/html\r\n"));
  const auto entered = one.receive();
  CHECK(entered.status == 303);
  CHECK(entered.fields.at("location") == "/.//evil.example/?a=1&b=2");
  CHECK(entered.fields.at("set-cookie").starts_with("insula-preview=" + token + "; Path=/; "));
  CHECK(entered.fields.at("set-cookie").find("HttpOnly") != std::string::npos);
}

TEST_CASE("the key reaches no server in a sandbox, whatever carries it", "[http][preview]") {
  const std::string key = "k-0123456789abcdef+/";
  const std::string encoded = "dTprLTAxMjM0NTY3ODlhYmNkZWYrLw=="; // u:<key>
  auto options = with_key();
  options.api_key = key;
  options.previews_public = GENERATE(false, true);
  options.execd = http::server_options::execd_listener{"127.0.0.1", 0};
  house h{options};
  inner_server server;
  const auto proxied = "/proxy/" + std::to_string(server.port());
  const std::vector<std::string> ways{"Authorization: Bearer " + key,
                                      "Authorization: Basic " + encoded,
                                      "X-EXECD-ACCESS-TOKEN: " + key,
                                      "OPEN-SANDBOX-API-KEY: " + key,
                                      "X-Api-Key: " + key,
                                      "X-Basic: " + encoded,
                                      "Cookie: a=1; k=" + key,
                                      "Cookie: k=k%2D0123456789abcdef%2b%2f; a=1",
                                      "Referer: http://localhost/?token=" + key,
                                      "Sec-WebSocket-Protocol: " + key};
  const std::string shown = "\r\nAuthorization: Bearer " + key + "\r\n";
  for (const auto& way : ways)
    for (const std::string more : {"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"})
      for (const auto& [port, host, target] :
           {std::tuple{h.port(), server.host(), std::string{"/x"}},
            {h.port(), std::string{"node"}, server.prefix() + "/x"},
            {h.port(), std::string{"node"}, "/sandboxes/abc/proxy/44772" + proxied + "/x"},
            {h.server().execd_port(), std::string{"node"}, proxied + "/x"}}) {
        CAPTURE(way, more, target);
        client one{port};
        one.send(get(target + "?token=" + key + "&b=" + encoded + "&c=2", host,
                     more + shown.substr(2) + way + "\r\n"));
        auto inside = server.accept();
        const auto head = inside.head();
        CHECK(head.starts_with("GET /x?c=2 HTTP/1.1\r\n"));
        CHECK_FALSE(key_check{key}.is_in(head));
        CHECK(head.find(encoded) == std::string::npos);
        CHECK((head.find("Upgrade: websocket") != std::string::npos) == !more.empty());
        if (way.starts_with("Cookie"))
          CHECK(head.find("Cookie: a=1\r\n") != std::string::npos);
        inside.send(ok);
        CHECK(one.receive().status == 200);
      }
  CHECK(ask(h.port(), "GET", server.prefix() + "/" + key, {}, shown.substr(2)).status == 400);
  for (const std::string more : {"", "Connection: Upgrade\r\n"})
    CHECK(ask(h.port(), "GET", server.prefix() + "/x", {},
              shown.substr(2) + more + "Upgrade: " + key + "\r\n")
            .status == 400);
  CHECK_FALSE(server.is_asked(0ms));
}

TEST_CASE("a request's id that has the key in it is another one", "[http][preview]") {
  const std::string key = GENERATE("k-0123456789abcdef", "dev");
  auto options = with_key();
  options.api_key = key;
  house h{options};
  inner_server server;
  const auto shown = "Authorization: Bearer " + key + "\r\n";
  const auto id = key + ".1";
  const auto own = ask(h.port(), "GET", "/health", {}, "X-Request-Id: " + id + "\r\n");
  CHECK(own.status == 200);
  CHECK(own.fields.at("x-request-id").find(key) == std::string::npos);
  client one{h.port()};
  one.send(get(server.prefix() + "/", "node", shown + "X-Request-Id: " + id + "\r\n"));
  auto inside = server.accept();
  CHECK(inside.head().find(key) == std::string::npos);
  inside.send(ok);
  CHECK(one.receive().fields.at("x-request-id").find(key) == std::string::npos);
}

TEST_CASE("a short key is no part of the host's name", "[http][preview]") {
  auto options = with_key();
  options.api_key = "dev";
  options.preview_domain = "dev.example";
  house h{options};
  inner_server server;
  const auto host = std::to_string(server.port()) + "-abc.dev.example";
  client one{h.port()};
  one.send(get("/", host, "Authorization: Bearer dev\r\n"));
  auto inside = server.accept();
  const auto head = inside.head();
  CHECK(head.find("Host: " + host + "\r\n") != std::string::npos);
  CHECK(head.find("X-Forwarded-Host: " + host + "\r\n") != std::string::npos);
  CHECK(head.find("Authorization") == std::string::npos);
  inside.send(ok);
  CHECK(one.receive().status == 200);
}

TEST_CASE("no token for a preview is one for commands", "[http][preview][execd]") {
  house h{with_key()};
  const std::string key = "Authorization: Bearer s3cret\r\n";
  const auto link = ask(h.port(), "POST", "/v1/sandbox/abc/preview", R"({"port":44772})", key);
  CHECK(link.status == 400);
  CHECK(link.body.find("port 44772 is execd's") != std::string::npos);
  h.plays().description.exists = true;
  // OpenSandbox's endpoint says that it is one.
  const auto endpoint = ask(h.port(), "GET", "/v1/sandboxes/abc/endpoints/44772", {}, key);
  REQUIRE(endpoint.status == 200);
  const std::string name = R"("X-EXECD-ACCESS-TOKEN":")";
  const auto at = endpoint.body.find(name) + name.size();
  const auto token = endpoint.body.substr(at, endpoint.body.find('"', at) - at);
  CHECK(ask(h.port(), "GET", "/v1/sandboxes/abc/proxy/44772/ping", {},
            "X-EXECD-ACCESS-TOKEN: " + token + "\r\n")
          .status == 200);
}

TEST_CASE("with a key, a public preview asks nobody", "[http][preview]") {
  auto options = with_key();
  options.previews_public = true;
  house h{options};
  inner_server server;
  client one{h.port()};
  one.send(get("/", server.host()));
  auto inside = server.accept();
  inside.head();
  inside.send(ok);
  CHECK(one.receive().status == 200);
  CHECK(ask(h.port(), "POST", "/v1/sandbox/abc/preview", R"({"port":80})",
            "Authorization: Bearer s3cret\r\n")
          .body.find(R"("token":null)") != std::string::npos);
}

TEST_CASE("without a key, pages of other sandboxes and sites are refused", "[http][preview]") {
  house h;
  inner_server server;
  const auto status = [&](const std::string& fields, const std::string& target = "/") {
    client each{h.port()};
    each.send(get(target, target == "/" ? server.host() : "localhost", fields));
    if (server.is_asked(300ms)) {
      auto inside = server.accept();
      inside.head();
      inside.send(ok);
    }
    return each.receive().status;
  };
  CHECK(status("Origin: http://" + server.host() + "\r\n") == 200);
  CHECK(status("Origin: http://3000-abc.localhost:8787\r\nSec-Fetch-Site: cross-site\r\n") == 200);
  CHECK(status("Origin: http://3000-abd.localhost:8787\r\n") == 403);
  CHECK(status("Origin: https://evil.example\r\n") == 403);
  CHECK(status("Origin: null\r\n") == 403);
  CHECK(status("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n") == 403);
  CHECK(status("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n") == 200);
  CHECK(status("Sec-Fetch-Site: same-origin\r\n") == 200);
  CHECK(status("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n",
               server.prefix() + "/") == 403);
  CHECK(status("", server.prefix() + "/") == 200);
}

TEST_CASE("where a preview is, is said", "[http][preview]") {
  house h;
  const std::string target = "/v1/sandbox/abc/preview";
  client one{h.port()};
  one.send("POST " + target +
           " HTTP/1.1\r\nHost: localhost:8787\r\nContent-Length: 13\r\n\r\n{\"port\":3000}");
  CHECK(
    one.receive().body ==
    R"({"port":3000,"url":"http://3000-abc.localhost:8787/","path":"/v1/sandbox/abc/port/3000/","token":null,"expires_at":null})");
  CHECK(ask(h.port(), "POST", "/v1/sandbox/" + std::string(80, 'a') + "/preview", R"({"port":1})")
          .body.find(R"("url":null)") != std::string::npos);
  for (const auto& [body, why] : std::vector<std::pair<std::string, std::string>>{
         {"", "Invalid JSON body"},
         {"[]", "the body must be a JSON object"},
         {"{}", "port must be a number from 1 to 65535"},
         {R"({"port":0})", "port must be a number from 1 to 65535"},
         {R"({"port":"80"})", "port must be a number from 1 to 65535"},
         {R"({"port":80,"expires_in_s":0})", "expires_in_s must be a number from 1 to 2592000"},
         {R"({"port":80,"public":true})", R"(unknown member \"public\")"}}) {
    const auto got = ask(h.port(), "POST", target, body);
    CHECK(got.status == 400);
    CHECK(got.body == R"({"error":")" + why + R"(","code":"invalid_request"})");
  }
}

TEST_CASE("a header may come in any two pieces, and its body stays whole", "[http][preview]") {
  house h;
  inner_server server;
  const std::string body = "\r\n\r\nGET /v1/sandbox HTTP/1.1\r\n\r\n" + std::string(300, 'x');
  const auto whole = "POST / HTTP/1.1\r\nHost: " + server.host() +
                     "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  const auto end = whole.size() - body.size();
  for (auto at = end - 6; at <= end + 2; ++at) {
    CAPTURE(end - at);
    client one{h.port()};
    one.send(whole.substr(0, at));
    std::this_thread::sleep_for(20ms); // So that they are read apart.
    one.send(whole.substr(at));
    auto inside = server.accept();
    inside.head();
    CHECK(inside.read(body.size()) == body);
    inside.send(ok);
    CHECK(one.receive().body == "ok");
  }
}

TEST_CASE("a body in another coding than chunks is refused before anything is passed on",
          "[http][preview]") {
  house h;
  inner_server server;
  for (const std::string coding : {"gzip", "identity", "gzip, chunked", "chunked, x",
                                   "chunked\r\nTransfer-Encoding: chunked"}) {
    CAPTURE(coding);
    client one{h.port()};
    one.send("POST / HTTP/1.1\r\nHost: " + server.host() + "\r\nTransfer-Encoding: " + coding +
             "\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK(one.receive().status == 400);
    CHECK(one.at_end());
  }
  CHECK_FALSE(server.is_asked(0ms));
}

TEST_CASE("what has come along with a slow request waits for its turn", "[http][preview]") {
  house h;
  inner_server server;
  client one{h.port()};
  one.send(get("/slow", server.host()) + "POST /next HTTP/1.1\r\nHost: " + server.host() +
           "\r\nContent-Length: 3\r\n\r\nabc");
  auto inside = server.accept();
  inside.head();
  std::this_thread::sleep_for(300ms); // By now the client's leaving is looked out for.
  inside.send(ok);
  CHECK(one.receive().body == "ok");
  CHECK(inside.head().starts_with("POST /next"));
  CHECK(inside.read(3) == "abc");
  inside.send(ok);
  CHECK(one.receive().body == "ok");
}

TEST_CASE("a client that leaves after a slow upload is noticed", "[http][preview]") {
  house h;
  inner_server server;
  client one{h.port()};
  one.send("POST / HTTP/1.1\r\nHost: " + server.host() + "\r\nContent-Length: 2\r\n\r\na");
  auto inside = server.accept();
  std::this_thread::sleep_for(200ms);
  one.send("b");
  inside.head();
  CHECK(inside.read(2) == "ab");
  one.close();
  CHECK(inside.at_end());
}

TEST_CASE("what is no part of an answer's header does not become one", "[http][preview]") {
  house h;
  inner_server server;
  client one{h.port()};
  one.send(get("/", server.host()));
  auto inside = server.accept();
  inside.head();
  SECTION("trailers, and fields of the connection") {
    inside.send("HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Own: 1\r\n"
                "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Late: 1\r\n\r\n");
    const auto got = one.receive();
    CHECK(got.body == "ok");
    CHECK(got.fields.count("x-own") == 1);
    CHECK(got.fields.count("x-hop") == 0);
    CHECK(got.fields.count("x-late") == 0);
  }
  SECTION("a line that goes on with a blank is one") {
    inside.send("HTTP/1.1 200 OK\r\nX: 1\r\n\t2\r\nContent-Length: 2\r\n\r\nok");
    const auto got = one.receive();
    CHECK(got.body == "ok");
    CHECK(got.fields.at("x") == "1 2");
  }
  SECTION("answers before the answer, without end") {
    for (int i = 0; i < 40; ++i)
      inside.send("HTTP/1.1 102 Wait\r\n\r\n");
    auto got = one.receive(true);
    for (int i = 0; i < 40 && got.status == 102; ++i)
      got = one.receive(true);
    CHECK(got.status == 502);
  }
}

TEST_CASE("a cookie does not help pages of other sandboxes", "[http][preview]") {
  house h{with_key()};
  inner_server server;
  const auto ends =
    std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()) + 60s;
  const auto token = preview::sign_token("only here", "abc", server.port(), ends);
  const auto status = [&](const std::string& fields, const std::string& target = "/") {
    client each{h.port()};
    each.send(get(target, server.host(), fields));
    if (server.is_asked(300ms)) {
      auto inside = server.accept();
      CHECK(inside.head().find(token) == std::string::npos);
      inside.send(ok);
    }
    return each.receive().status;
  };
  const auto cookie = "Cookie: insula-preview=tossed; insula-preview=" + token + "\r\n";
  CHECK(status(cookie) == 200);
  CHECK(status(cookie + "Origin: http://" + server.host() + "\r\n") == 200);
  CHECK(status(cookie + "Origin: http://3000-abd.localhost\r\n") == 403);
  CHECK(status(cookie + "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\n") == 403);
  CHECK(status(cookie + "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n") == 200);
  // However its name is written.
  CHECK(status("Accept: text/html\r\n", "/?insula%5Fpreview_token=" + token) == 303);
  CHECK(status("", "/?insula%5Fpreview_token=" + token) == 200);
}

namespace {

std::string in_execd(const inner_server& server, const std::string& rest) {
  return "/sandboxes/abc/proxy/44772/proxy/" + std::to_string(server.port()) + rest;
}

} // namespace

TEST_CASE("execd goes on to a port, for whoever may use it", "[http][preview][execd]") {
  house h{with_key()};
  inner_server server;
  const auto refused = ask(h.port(), "GET", in_execd(server, "/x"));
  CHECK(refused.status == 401);
  CHECK(refused.body ==
        R"({"error":"Unauthorized: invalid or missing header X-EXECD-ACCESS-TOKEN"})");
  client one{h.port()};
  one.send(get("/v1" + in_execd(server, "/x?y=1"), "node", "X-EXECD-ACCESS-TOKEN: s3cret\r\n"));
  auto inside = server.accept();
  const auto head = inside.head();
  CHECK(head.starts_with("GET /x?y=1 HTTP/1.1\r\n"));
  CHECK(head.find("s3cret") == std::string::npos);
  CHECK(head.find("X-Forwarded-Prefix: /v1" + in_execd(server, "") + "\r\n") != std::string::npos);
  inside.send(ok);
  CHECK(one.receive().body == "ok");
  // A path that ends with the port is that port's root, whatever the method.
  one.send("OPTIONS " + in_execd(server, "") +
           " HTTP/1.1\r\nHost: node\r\nOPEN-SANDBOX-API-KEY: s3cret\r\n\r\n");
  CHECK(inside.head().starts_with("OPTIONS / HTTP/1.1\r\n"));
  inside.send(ok);
  CHECK(one.receive().status == 200);
}

TEST_CASE("execd says what names no port, and where nothing listens", "[http][preview][execd]") {
  http::server_options options;
  options.execd = http::server_options::execd_listener{"127.0.0.1", 0};
  house h{options};
  for (const std::string rest : {"", "/", "/x", "/0/", "/65536/", "/080/x", "/+80/"})
    for (const auto* method : {"GET", "POST", "OPTIONS"}) {
      CAPTURE(rest, method);
      const auto got = ask(h.port(), method, "/sandboxes/abc/proxy/44772/proxy" + rest);
      CHECK(got.status == 400);
      CHECK(got.fields.at("content-type") == "text/plain");
      CHECK(ask(h.server().execd_port(), method, "/proxy" + rest).status == 400);
    }
  std::string nothing;
  {
    const inner_server gone;
    nothing = in_execd(gone, "/");
  }
  CHECK(ask(h.port(), "GET", nothing).status == 502);
}

TEST_CASE("execd at an address of its own goes on to its sandbox's ports",
          "[http][preview][execd]") {
  auto options = with_key();
  options.execd = http::server_options::execd_listener{"127.0.0.1", 0};
  house h{options};
  inner_server server;
  const auto target = "/proxy/" + std::to_string(server.port()) + "/x";
  const auto port = h.server().execd_port();
  CHECK(ask(port, "GET", target).status == 401);
  client one{port};
  one.send(get(target, "node", "X-EXECD-ACCESS-TOKEN: s3cret\r\n"));
  auto inside = server.accept();
  CHECK(inside.head().starts_with("GET /x HTTP/1.1\r\n"));
  inside.send(ok);
  CHECK(one.receive().body == "ok");
  // It is one sandbox's, and no name or path leads to another.
  const auto other = "/sandboxes/abc" + target;
  CHECK(ask(port, "GET", other, "", "X-EXECD-ACCESS-TOKEN: s3cret\r\n").status == 404);
}

TEST_CASE("execd goes on with a WebSocket, too", "[http][preview][execd]") {
  house h;
  inner_server server;
  client one{h.port()};
  one.send(upgrade_request(in_execd(server, "/socket")));
  auto inside = server.accept();
  CHECK(inside.head().find("Upgrade: WebSocket\r\n") != std::string::npos);
  inside.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
              "Upgrade: websocket\r\n\r\nhello");
  CHECK(one.read_until("hello").find("101") != std::string::npos);
  one.send("back");
  CHECK(inside.read(4) == "back");
}

namespace {

/// The value of a string in a JSON text.
std::string string_in(const std::string& text, const std::string& name) {
  const auto before = "\"" + name + "\":\"";
  const auto at = text.find(before);
  REQUIRE(at != std::string::npos);
  const auto from = at + before.size();
  return text.substr(from, text.find('"', from) - from);
}

const std::string key_field = "Authorization: Bearer s3cret\r\n";
const std::string running = get("/v1/sandbox/abc/running", "node", key_field);

} // namespace

TEST_CASE("visitors leave places for clients that have the key", "[http][preview]") {
  const std::string shown = GENERATE("nothing", "a token", "a cookie", "execd's token");
  CAPTURE(shown);
  auto options = with_key();
  options.previews_public = shown == "nothing";
  options.max_connections = 16;
  house h{options};
  h.plays().description.exists = true;
  inner_server server;
  const auto port = std::to_string(server.port());
  auto asked = get("/", server.host());
  if (shown == "execd's token") {
    const auto endpoint = ask(h.port(), "GET", "/v1/sandboxes/abc/endpoints/44772", {}, key_field);
    const auto token = string_in(endpoint.body, "X-EXECD-ACCESS-TOKEN");
    asked = get("/sandboxes/abc/proxy/44772/proxy/" + port + "/", "node",
                "X-EXECD-ACCESS-TOKEN: " + token + "\r\n");
  } else if (shown != "nothing") {
    const auto link =
      ask(h.port(), "POST", "/v1/sandbox/abc/preview", R"({"port":)" + port + "}", key_field);
    const auto token = string_in(link.body, "token");
    asked = get("/", server.host(),
                (shown == "a token" ? "X-Insula-Preview-Token: " : "Cookie: insula-preview=") +
                  token + "\r\n");
  }
  const auto visit = [&](client& by) { by.send(asked); };
  std::vector<std::unique_ptr<client>> busy;
  std::vector<inner_connection> inside;
  for (int i = 0; i < 14; ++i) {
    busy.push_back(std::make_unique<client>(h.port()));
    visit(*busy.back());
    inside.push_back(server.accept());
    inside.back().head();
  }
  {
    client one_more{h.port()};
    visit(one_more);
    CHECK(one_more.receive().status == 503);
  }
  for (int i = 0; i < 8; ++i) {
    client holder{h.port()};
    holder.send(running);
    CHECK(holder.receive().status == 200);
  }
  // A visitor that is being served stays. One that waits for its next request goes for another.
  inside.front().send(ok);
  CHECK(busy.front()->receive().body == "ok");
  std::unique_ptr<client> next;
  do { // It waits for the next request only a moment after its answer.
    next = std::make_unique<client>(h.port());
    visit(*next);
  } while (!server.is_asked(1s));
  auto other = server.accept();
  other.head();
  CHECK(busy.front()->at_end());
  for (std::size_t i = 1; i < busy.size(); ++i) {
    inside[i].send(ok);
    CHECK(busy[i]->receive().body == "ok");
  }
  other.send(ok);
  CHECK(next->receive().body == "ok");
}

TEST_CASE("a client that waits at the door comes in once a visitor has been answered",
          "[http][preview]") {
  auto options = with_key();
  options.previews_public = true;
  options.max_connections = 16;
  house h{options};
  inner_server server;
  std::vector<std::unique_ptr<client>> visitors;
  std::vector<inner_connection> inside;
  for (int i = 0; i < 14; ++i) {
    visitors.push_back(std::make_unique<client>(h.port()));
    visitors.back()->send(get("/", server.host()));
    inside.push_back(server.accept());
    inside.back().head();
  }
  std::vector<std::unique_ptr<client>> holders;
  for (int i = 0; i < 2; ++i) {
    holders.push_back(std::make_unique<client>(h.port()));
    holders.back()->send(running);
    CHECK(holders.back()->receive().status == 200);
  }
  client newcomer{h.port()};
  newcomer.send(running);
  // The listener shares its thread with connections: it has met the full door once they are served.
  for (int round = 0; round < 3; ++round)
    for (auto& each : holders) {
      each->send(running);
      CHECK(each->receive().status == 200);
    }
  inside.front().send(ok);
  CHECK(visitors.front()->receive().body == "ok");
  CHECK(newcomer.receive().status == 200);
  CHECK(visitors.front()->at_end());
  inside.back().send(ok);
  CHECK(visitors.back()->receive().body == "ok");
}

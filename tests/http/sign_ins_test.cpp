#include "http/api/sign_ins.hpp"

#include "base/limits.hpp"
#include "http/api/dispatcher.hpp"
#include "http/bridge/api.hpp"
#include "http/transport/connection.hpp"
#include "tests/http/plain_api.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/played_head.hpp"

#include <map>
#include <set>

using namespace insula;
using namespace insula::http;

namespace {

using browser_head = test::played_head;
using fields = browser_head::fields_type;

const sign_ins::time_point then{std::chrono::hours{1000}};

} // namespace

TEST_CASE("a token is good until its time is over or it is signed out", "[http][sign_ins]") {
  sign_ins browsers{false};
  const auto token = browsers.open(then);
  const auto other = browsers.open(then);
  CHECK(token.size() == 64);
  CHECK(token != other);
  CHECK(browsers.holds(token, then));
  CHECK(browsers.holds(token, then + limits::sign_in_lasts - std::chrono::seconds{1}));
  CHECK_FALSE(browsers.holds(token, then + limits::sign_in_lasts));
  browsers.close(token);
  CHECK_FALSE(browsers.holds(token, then));
  CHECK(browsers.holds(other, then));
  browsers.close("never given");
  for (const auto& wrong : {std::string{}, std::string(64, '0'), other + "0", other.substr(1)})
    CHECK_FALSE(browsers.holds(wrong, then));
  CHECK_FALSE(sign_ins{false}.holds(other, then)); // Another process's are nobody's.
}

TEST_CASE("only so many browsers are signed in: of more, the oldest is not any longer",
          "[http][sign_ins]") {
  sign_ins browsers{false};
  const auto first = browsers.open(then);
  const auto second = browsers.open(then + std::chrono::seconds{1});
  for (std::size_t i = 1; i < limits::sign_ins; ++i)
    browsers.open(then + std::chrono::seconds{2});
  CHECK_FALSE(browsers.holds(first, then));
  CHECK(browsers.holds(second, then));
}

TEST_CASE("after too many wrong keys their network has to wait, for a minute at most, and no other",
          "[http][sign_ins]") {
  using std::chrono::seconds;
  sign_ins browsers{false};
  for (std::size_t i = 0; i < limits::wrong_keys; ++i)
    CHECK_FALSE(browsers.note_wrong_key("192.0.2.1", then + seconds{i}));
  const auto now = then + seconds{10};
  CHECK(browsers.note_wrong_key("192.0.2.1", now) == seconds{50});
  CHECK_FALSE(browsers.note_wrong_key("192.0.2.2", now));
  CHECK_FALSE(browsers.note_wrong_key("2001:db8::/64", now));
  // What is refused does not make the wait longer, and the first one counts no more.
  CHECK_FALSE(browsers.note_wrong_key("192.0.2.1", then + limits::wrong_keys_within));
  CHECK(browsers.note_wrong_key("192.0.2.1", then + limits::wrong_keys_within) == seconds{1});
}

TEST_CASE("of too many networks the quietest is forgotten", "[http][sign_ins]") {
  using std::chrono::milliseconds;
  sign_ins browsers{false};
  const auto use_up = [&](const std::string& network, sign_ins::time_point when) {
    for (std::size_t i = 0; i < limits::wrong_keys; ++i)
      browsers.note_wrong_key(network, when);
  };
  use_up("quiet", then);
  use_up("busy", then + milliseconds{1});
  for (std::size_t i = 2; i < limits::wrong_networks; ++i)
    CHECK_FALSE(browsers.note_wrong_key(std::to_string(i), then + milliseconds{2}));
  CHECK_FALSE(browsers.note_wrong_key("one more", then + milliseconds{3}));
  CHECK(browsers.note_wrong_key("busy", then + milliseconds{4}));
  CHECK_FALSE(browsers.note_wrong_key("quiet", then + milliseconds{5}));
}

TEST_CASE("an address of IPv6 counts as its network", "[http][sign_ins]") {
  CHECK(network_of("192.0.2.1") == "192.0.2.1");
  CHECK(network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::1"));
  CHECK(network_of("2001:db8:1:2::1") != network_of("2001:db8:1:3::1"));
  CHECK(network_of("unknown") == "unknown");
}

TEST_CASE("each port has a cookie of its own", "[http][sign_ins]") {
  CHECK(sign_in_cookie_name("127.0.0.1:8787") == "insula-8787");
  CHECK(sign_in_cookie_name("[::1]:80") == "insula-80");
  for (const auto* host : {"localhost", "[::1]", "", "a:", "a:b", ":", "8787"})
    CHECK(sign_in_cookie_name(host) == "insula");
}

TEST_CASE("every cookie of the whole name may have the token", "[http][sign_ins]") {
  const auto tokens = [](std::string_view field, std::string_view host) {
    std::string all;
    for (const auto each : sign_in_tokens(field, host))
      (all += each) += "|";
    return all;
  };
  CHECK(tokens("insula=a", "node") == "a|");
  CHECK(tokens("x=1; insula=a;insula-80=b; y", "node") == "a|");
  CHECK(tokens("x=1; insula=a;insula-80=b; y", "node:80") == "b|");
  CHECK(tokens("insula=a=b", "node") == "a=b|");
  CHECK(tokens("insula=tossed; __Host-insula=a; insula=; insula=b", "node") == "tossed|a|b|");
  for (const auto* none :
       {"", "insula", "insula=", "xinsula=a", "insula =a", ";;", " ", "=a", "__host-insula=a"})
    CHECK(tokens(none, "node").empty());
}

TEST_CASE("a page's own origin is the one it was asked for by", "[http][origin]") {
  const auto own = [](verb how, fields more, bool encrypted = false) {
    more.emplace_back("Host", "node:8787");
    return comes_from_own_page(browser_head{how, "/", std::move(more)}, encrypted);
  };
  CHECK(own(verb::post, {{"Origin", "http://node:8787"}}));
  CHECK(own(verb::post, {{"Origin", "http://NODE:8787"}}));
  CHECK(own(verb::get, {{"Origin", "https://node:8787"}}));
  CHECK(own(verb::get, {{"Sec-Fetch-Site", "same-origin"}}));
  CHECK(own(verb::get, {{"Referer", "http://node:8787/"}}));
  CHECK(own(verb::get, {{"Origin", "http://node:8787"}, {"Upgrade", "websocket"}}));
  CHECK(own(verb::post, {{"Origin", "https://node:8787"}}, true));

  CHECK_FALSE(own(verb::get, {}));
  CHECK_FALSE(own(verb::post, {}));
  for (const auto* origin : {"null", "http://node", "http://node:87", "http://node:8787.evil",
                             "http://evil:8787", "node:8787", "http://node:8787/"})
    CHECK_FALSE(own(verb::post, {{"Origin", origin}}));
  // What says otherwise counts for more.
  CHECK_FALSE(own(verb::get, {{"Origin", "http://evil"}, {"Sec-Fetch-Site", "same-origin"}}));
  CHECK_FALSE(own(verb::get, {{"Sec-Fetch-Site", "same-site"}, {"Referer", "http://node:8787/"}}));
  for (const auto* site : {"none", "cross-site", "same-site", "Same-Origin"})
    CHECK_FALSE(own(verb::get, {{"Sec-Fetch-Site", site}}));
  for (const auto* referer :
       {"http://evil/http://node:8787/", "http://node:8787.evil/", "node:8787"})
    CHECK_FALSE(own(verb::get, {{"Referer", referer}}));
  // Only a GET comes without Origin, and no WebSocket does.
  CHECK_FALSE(own(verb::post, {{"Sec-Fetch-Site", "same-origin"}}));
  CHECK_FALSE(own(verb::del, {{"Referer", "http://node:8787/"}}));
  CHECK_FALSE(own(verb::get, {{"Sec-Fetch-Site", "same-origin"}, {"Upgrade", "websocket"}}));
  // Without encryption, somebody else may have made the page.
  CHECK_FALSE(own(verb::post, {{"Origin", "http://node:8787"}}, true));
  CHECK_FALSE(comes_from_own_page(browser_head{verb::post, "/", {{"Origin", "http://"}}}, false));
}

TEST_CASE("a cookie is the key for this node's own pages, and for nobody else",
          "[http][sign_ins]") {
  const auto browsers = std::make_shared<sign_ins>(false);
  const auto token = browsers->open(sign_ins::clock::now());
  const auto row = [](verb how, const std::string& pattern, const access_scheme* who) {
    return route{
      how, pattern, who, body_use::ignored, 0, [](const matched_request&) { return admission{}; },
      {}};
  };
  const dispatcher api{test::served({row(verb::post, "/v1/sandbox", http::access::key),
                                     row(verb::get, "/v1/sandbox/:id/pty", http::access::key),
                                     row(verb::get, "/console/sandboxes", http::access::key),
                                     row(verb::post, "/console/sign-in", http::access::own_page)},
                                    credentials{key_check{"s3cret"}, browsers},
                                    bridge::make_api(nullptr))};
  const auto status = [&](verb how, std::string_view path, fields more) {
    more.emplace_back("Host", "node:8787");
    const auto plan = api.admit(browser_head{how, path, std::move(more)});
    return plan.refusal ? plan.refusal->status : 200;
  };
  const std::string cookie = "insula-8787=" + token;
  const fields own{{"Cookie", cookie}, {"Origin", "http://node:8787"}};
  CHECK(status(verb::post, "/v1/sandbox", own) == 200);
  CHECK(status(verb::get, "/console/sandboxes",
               {{"Cookie", cookie}, {"Sec-Fetch-Site", "same-origin"}}) == 200);
  CHECK(status(verb::get, "/v1/sandbox/abc/pty",
               {{"Cookie", cookie}, {"Origin", "http://node:8787"}, {"Upgrade", "websocket"}}) ==
        200);

  CHECK(status(verb::post, "/v1/sandbox", {{"Cookie", cookie}}) == 401);
  CHECK(status(verb::post, "/v1/sandbox", {{"Cookie", cookie}, {"Origin", "http://evil"}}) == 401);
  CHECK(status(verb::post, "/v1/sandbox", {{"Origin", "http://node:8787"}}) == 401);
  CHECK(status(verb::post, "/v1/sandbox",
               {{"Cookie", "insula=" + token}, {"Origin", "http://node:8787"}}) == 401);
  CHECK(status(verb::get, "/v1/sandbox/abc/pty",
               {{"Cookie", cookie}, {"Sec-Fetch-Site", "same-origin"}, {"Upgrade", "websocket"}}) ==
        401);
  CHECK(status(verb::get, "/console/sandboxes", {{"Cookie", cookie}}) == 401);
  // Whatever else pages of the same domain have set, before it or in a field of its own.
  CHECK(status(verb::post, "/v1/sandbox",
               {{"Cookie", "insula-8787=x; " + cookie + "; insula-8787=" + std::string(64, '0')},
                {"Origin", "http://node:8787"}}) == 200);
  CHECK(status(verb::post, "/v1/sandbox",
               {{"Cookie", "insula-8787=x"}, {"Cookie", cookie}, {"Origin", "http://node:8787"}}) ==
        200);
  CHECK(status(verb::post, "/v1/sandbox",
               {{"Cookie", "__Host-" + cookie}, {"Origin", "http://node:8787"}}) == 200);
  // A foreign page is not told whether a key would be right.
  CHECK(status(verb::post, "/console/sign-in", {{"Origin", "http://evil"}}) == 403);
  CHECK(status(verb::post, "/console/sign-in", {}) == 403);
  CHECK(status(verb::post, "/console/sign-in", {{"Origin", "http://node:8787"}}) == 200);
  // The order of checks stays: a malformed id comes first.
  CHECK(status(verb::get, "/v1/sandbox/BAD/pty", own) == 400);
  browsers->close(token);
  CHECK(status(verb::post, "/v1/sandbox", own) == 401);
}

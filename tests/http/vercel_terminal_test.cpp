// Terminals of the Vercel API over a sandbox that the test plays.
#include "base/clock.hpp"
#include "base/limits.hpp"
#include "http/json/document.hpp"
#include "http/sandboxes/used_tokens.hpp"
#include "http/vercel/settings.hpp"
#include "http/vercel/terminal_tokens.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

using namespace insula;
using namespace insula::test;
using namespace insula::http::vercel;
using namespace std::chrono_literals;

namespace {

const std::string secret = "secret of this test";
const session_id session{std::string(26, 'a'), 2};
const std::string path = "/v2/sandboxes/sessions/" + session.text() + "/interactive";
const std::string start =
  R"({"type":"start","command":"sh","args":["-c","x y"],"env":["A=1","B=x=y","A=2"],"cwd":"sub","cols":100,"rows":30})";
const std::string exit_1 = R"({"type":"exit","code":1})";

http::server_options options() {
  http::server_options made;
  made.secret = secret;
  made.allowed_hosts = {"node.example"};
  return made;
}

/// Its second run runs.
struct terminal_house : house {
  explicit terminal_house(http::server_options with = options())
      : house(std::move(with)) {
    plays().opens_terminals = true;
    auto& is = plays().description;
    is.exists = true;
    settings mine;
    mine.project = "prj";
    mine.name = "box";
    is.metadata[metadata_api] = text_of(mine);
    is.run.emplace();
    is.run->number = session.run;
    is.run->state = run_state::running;
  }

  answer invite(const std::string& fields = {}, const std::string& body = "{}") {
    return ask(port(), "POST", path, body, fields);
  }
  std::string token() { return text_in(invite().body, "token"); }
  static std::string text_in(const std::string& text, const char* name) {
    http::json::document said;
    REQUIRE(http::json::parse(text, said));
    const auto* value = http::json::find(said, name);
    return value != nullptr && value->IsString() ? http::json::string_of(*value) : "";
  }
  web_socket_client open(const std::string& token, const std::string& at = path) {
    return web_socket_client{port(), at + "?token=" + token};
  }
  web_socket_client open() { return open(token()); }
};

std::int64_t now_ms() {
  return system_clock{}.unix_ms();
}

} // namespace

TEST_CASE("a token counts once until it expires, and so many are remembered", "[http][terminal]") {
  using verdict = http::used_tokens::verdict;
  http::used_tokens used{2, 3}; // The node is full first.
  CHECK(used.use("box", "a", 100, 10) == verdict::first);
  CHECK(used.use("box", "a", 100, 99) == verdict::again);
  CHECK(used.use("box", "b", 200, 20) == verdict::first);
  CHECK(used.use("box", "c", 200, 20) == verdict::full);
  CHECK(used.use("box", "b", 200, 20) == verdict::again);
  CHECK(used.use("box", "c", 200, 100) == verdict::first); // The first one has expired.
  CHECK(used.use("box", "d", 300, 100) == verdict::full);
  CHECK(used.use("box", "b", 200, 200) == verdict::again); // It has come to its end meanwhile.
}

TEST_CASE("the tokens of one sandbox use up no place of another's", "[http][terminal]") {
  using verdict = http::used_tokens::verdict;
  http::used_tokens used{5, 2};
  CHECK(used.use("busy", "a", 100, 10) == verdict::first);
  CHECK(used.use("busy", "b", 200, 10) == verdict::first);
  CHECK(used.use("busy", "c", 200, 10) == verdict::full);
  CHECK(used.use("other", "a", 200, 10) == verdict::first);
  CHECK(used.use("busy", "c", 200, 100) == verdict::first);
  CHECK(used.use("busy", "d", 300, 100) == verdict::full);
  CHECK(used.use("busy", "d", 300, 200) == verdict::first); // All before have expired.
  CHECK(used.use("busy", "e", 300, 200) == verdict::first);
  CHECK(used.use("busy", "f", 300, 200) == verdict::full);
}

TEST_CASE("Vercel: a terminal is where its client and the server say", "[http][vercel][terminal]") {
  terminal_house h;
  const auto invite = [&](const std::string& at, const std::string& fields) {
    client raw{h.port()};
    raw.send("POST " + at + " HTTP/1.1\r\n" + fields + "Content-Length: 0\r\n\r\n");
    const auto got = raw.receive();
    CHECK(got.status == 200);
    return got.body;
  };
  const auto got = invite(path, "Host: node.example:8787\r\n");
  CHECK(h.text_in(got, "url") == "ws://node.example:8787" + path);
  CHECK_FALSE(h.text_in(got, "token").empty());
  const auto behind_tls =
    invite("/api" + path + "?teamId=t", "Host: node.example\r\nX-Forwarded-Proto: https\r\n");
  CHECK(h.text_in(behind_tls, "url") == "wss://node.example/api" + path);
  CHECK(h.invite({}, "[]").status == 400);
  CHECK(h.token() != h.token());
}

TEST_CASE("Vercel: a terminal's first frame starts it, and its last one tells its end",
          "[http][vercel][terminal]") {
  terminal_house h;
  auto one = h.open();
  REQUIRE(one.head().status == 101);
  one.tell(start);
  CHECK(h.heard().has(
    "runs in a terminal [sh] [-c] [x y] in /vercel/sandbox/sub A=2 B=x=y at 100x30 of run 2"));
  one.type("ls\n");
  CHECK(h.heard().has("typed ls\n"));
  for (const auto* odd : {"no JSON", "[]", R"({"type":"start","command":"sh"})",
                          R"({"type":"resize","cols":0,"rows":1})", R"({"type":"resize","cols":7})",
                          R"({"type":"resize","cols":"7","rows":7})"})
    one.tell(odd);
  one.tell(R"({"type":"resize","cols":20,"rows":10})");
  CHECK(h.heard().has("resize 20x10"));
  h.print_terminal("\xe2\x82"); // Half a character is passed on as it is.
  const auto printed = one.next();
  CHECK(printed.kind == frame_kind::binary);
  CHECK(printed.bytes == "\xe2\x82");
  const auto [end, code] = GENERATE(table<process_end, std::string>({
    {process_end{}, "0"},
    {process_end{.exit_code = 3}, "3"},
    {process_end{.exit_code = 137, .signal = 9}, "137"},
  }));
  h.print_terminal("bye");
  h.end_terminal(end);
  const auto rest = one.to_end();
  CHECK(rest.printed == "bye");
  CHECK(rest.told == R"({"type":"exit","code":)" + code + "}\n");
  CHECK(rest.code == 1000);
  for (const auto& each : h.heard().all())
    CHECK((!each.starts_with("resize ") || each == "resize 20x10"));
}

TEST_CASE("Vercel: of a start frame the command alone is needed", "[http][vercel][terminal]") {
  terminal_house h;
  auto one = h.open();
  one.tell(R"({"type":"start","command":"bash","args":null,"cols":0,"rows":99999,"more":true})");
  CHECK(h.heard().has("runs in a terminal [bash] in /vercel/sandbox at 80x24 of run 2"));
}

TEST_CASE("Vercel: a sandbox of another API has terminals, in its own directory",
          "[http][vercel][terminal]") {
  terminal_house h;
  h.plays().description.metadata.clear();
  h.plays().description.run.reset();
  const session_id other{session.sandbox, 0};
  const auto at = "/v2/sandboxes/sessions/" + other.text() + "/interactive";
  const auto invited = ask(h.port(), "POST", at, "{}");
  CHECK(invited.status == 200);
  auto one = h.open(terminal_house::text_in(invited.body, "token"), at);
  REQUIRE(one.head().status == 101);
  one.tell(R"({"type":"start","command":"bash"})");
  CHECK(h.heard().has("runs in a terminal [bash] in /workspace at 80x24 of run 0"));
  CHECK(h.invite().status == 404); // Of a session that it has not.
}

TEST_CASE("Vercel: a terminal's token opens one terminal of its session, for a minute",
          "[http][vercel][terminal]") {
  terminal_house h;
  const auto refused = [&](const std::string& token, const std::string& at = path) {
    const auto head = h.open(token, at).head();
    CHECK(head.body.find(R"("code":"unauthorized")") != std::string::npos);
    return head.status;
  };
  const auto good = h.token();
  CHECK(refused("") == 401);
  CHECK(refused("x") == 401);
  CHECK(refused(good + "a") == 401);
  CHECK(refused("1" + good) == 401);
  const session_id before{session.sandbox, 1}, other{std::string(26, 'b'), 2};
  for (const auto& each : {before, other}) {
    CHECK(refused(good, "/v2/sandboxes/sessions/" + each.text() + "/interactive") == 401);
    CHECK(refused(make_terminal_token(secret, each, now_ms())) == 401);
  }
  CHECK(refused(make_terminal_token("another secret", session, now_ms())) == 401);
  CHECK(refused(make_terminal_token(secret, session, now_ms() - terminal_token_ms)) == 401);
  CHECK(refused(make_terminal_token(secret, session, now_ms() + 60'000)) == 401);
  // It may have been used at the server before.
  CHECK(refused(make_terminal_token(secret, session, now_ms() - terminal_token_ms / 2)) == 401);
  CHECK(ask(h.port(), "GET", path + "?token=" + good).status == 400); // And it is still good.
  auto one = h.open(good);
  REQUIRE(one.head().status == 101);
  CHECK(refused(good) == 401);
  one.tell(start);
  CHECK(h.heard().has(
    "runs in a terminal [sh] [-c] [x y] in /vercel/sandbox/sub A=2 B=x=y at 100x30 of run 2"));
}

TEST_CASE("Vercel: of connections with one token at once, one is served",
          "[http][vercel][terminal]") {
  terminal_house h;
  const auto token = h.token();
  std::vector<std::thread> all;
  std::atomic<int> served = 0, refused = 0;
  for (int i = 0; i < 8; ++i)
    all.emplace_back([&] {
      const auto status = h.open(token).head().status;
      served += status == 101 ? 1 : 0;
      refused += status == 401 ? 1 : 0;
    });
  for (auto& each : all)
    each.join();
  CHECK(served == 1);
  CHECK(refused == 7);
}

TEST_CASE("Vercel: a session that does not run has no terminal", "[http][vercel][terminal]") {
  terminal_house h;
  const auto token = h.token(); // While it ran.
  const auto [state, status, code] = GENERATE(table<run_state, int, std::string>({
    {run_state::stopped, 410, "sandbox_stopped"},
    {run_state::failed, 410, "sandbox_stopped"},
    {run_state::stopping, 422, "sandbox_stopping"},
    {run_state::snapshotting, 422, "sandbox_snapshotting"},
  }));
  h.plays().description.run->state = state;
  for (const auto& got : {h.invite(), h.open(token).head()}) {
    CHECK(got.status == status);
    CHECK(got.body.find("\"code\":\"" + code + '"') != std::string::npos);
  }
  h.plays().description.run->state = run_state::running;
  CHECK(h.open(token).head().status == 101);
}

TEST_CASE("Vercel: a session that was, or never was, has no terminal", "[http][vercel][terminal]") {
  terminal_house h;
  const auto invite = [&](const session_id& to) {
    return ask(h.port(), "POST", "/v2/sandboxes/sessions/" + to.text() + "/interactive", "{}")
      .status;
  };
  CHECK(invite({session.sandbox, 1}) == 410);
  CHECK(invite({session.sandbox, 3}) == 404);
  CHECK(ask(h.port(), "POST", "/v2/sandboxes/sessions/sbx_x/interactive", "{}").status == 404);
  CHECK(ask(h.port(), "GET", "/v2/sandboxes/sessions/sbx_x/interactive?token=x").status == 401);
  h.plays().description.exists = false;
  CHECK(invite(session) == 404);
}

TEST_CASE("Vercel: what starts no terminal is told so, with a code", "[http][vercel][terminal]") {
  terminal_house h;
  const auto end_of = [](web_socket_client& one, const std::string& sentence) {
    const auto rest = one.to_end();
    CHECK(rest.printed.starts_with("insula: "));
    CHECK(rest.printed.find(sentence) != std::string::npos);
    CHECK(rest.printed.ends_with("\r\n"));
    return rest.told + std::to_string(rest.code);
  };
  SECTION("a first frame that starts nothing") {
    const std::string long_word(2u << 20, 'x');
    for (const auto& [frame, sentence] : std::vector<std::pair<std::string, std::string>>{
           {"{", "the type start"},
           {"[]", "the type start"},
           {R"({"type":"resize","cols":1,"rows":1})", "the type start"},
           {R"({"type":"start"})", "command is required"},
           {R"({"type":"start","command":7})", "command must be a string"},
           {R"({"type":"start","command":"a\u0000b"})", "command must have no NUL"},
           {R"({"type":"start","command":"a","args":"b"})", "args must be"},
           {R"({"type":"start","command":"a","env":{"A":"1"}})", "env must be"},
           {R"({"type":"start","command":"a","env":["A"]})", "env must be an array of NAME=value"},
           {R"({"type":"start","command":"a","env":["=1"]})", "env must be an array of NAME=value"},
           {R"({"type":"start","command":"a","cwd":[]})", "cwd must be a string"},
           {R"({"type":"start","command":"a","cols":"80"})", "cols must be a number"},
           {R"({"type":"start","command":")" + long_word + R"("})", "too long"}}) {
      CAPTURE(frame.substr(0, 80));
      auto one = h.open();
      one.tell(frame);
      CHECK(end_of(one, sentence) == exit_1 + "\n1008");
    }
    auto binary = h.open();
    binary.type("ls\n");
    CHECK(end_of(binary, "must be text") == exit_1 + "\n1008");
    for (const auto& each : h.heard().all())
      CHECK_FALSE(each.starts_with("open_terminal"));
  }
  SECTION("a program that cannot run") {
    const auto [why, told] = GENERATE(table<error, std::string>({
      {{errc::launch_failed, "running the program x: No such file or directory"}, "127}\n1000"},
      {{errc::launch_failed, "running the program x: Permission denied"}, "126}\n1000"},
      {{errc::launch_failed, "entering the working directory /x: No such file or directory"},
       "126}\n1000"},
      {{errc::invalid_request, "the command is too large"}, "126}\n1000"},
      {{errc::limit_reached, "there are too many"}, "1}\n1013"},
      {{errc::run_over, "The sandbox session has stopped"}, "1}\n1001"},
      {{errc::sandbox_not_running, "the sandbox has ended"}, "1}\n1001"},
    }));
    h.plays().terminal_error = why;
    auto one = h.open();
    one.tell(start);
    CHECK(end_of(one, why.message) == R"({"type":"exit","code":)" + told);
  }
}

TEST_CASE("Vercel: strangers without a token cut no terminal", "[http][vercel][terminal]") {
  auto with = options();
  with.max_connections = 16;
  terminal_house h{with};
  auto one = h.open();
  REQUIRE(one.head().status == 101);
  one.tell(start);
  CHECK(h.heard().has(
    "runs in a terminal [sh] [-c] [x y] in /vercel/sandbox/sub A=2 B=x=y at 100x30 of run 2"));
  std::vector<std::unique_ptr<client>> strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.push_back(std::make_unique<client>(h.port()));
    strangers.back()->send("GET / HTTP/1.1\r\n");
  }
  one.type("ls\n");
  CHECK(h.heard().has("typed ls\n"));
}

TEST_CASE("Vercel: a client that says nothing has a limit", "[http][vercel][terminal]") {
  auto with = options();
  with.start_message_patience = 200ms;
  terminal_house h{with};
  const auto rest = h.open().to_end();
  CHECK(rest.printed.find("in time") != std::string::npos);
  CHECK(rest.told == exit_1 + "\n");
  CHECK(rest.code == 1008);
}

TEST_CASE("Vercel: a terminal's client is told when the server ends", "[http][vercel][terminal]") {
  terminal_house h;
  auto one = h.open();
  if (GENERATE(true, false)) {
    one.tell(start);
    one.type("x");
    CHECK(h.heard().has("typed x")); // It runs.
  }
  std::thread stopper{[&] { h.server().stop(10s); }};
  const auto rest = one.to_end();
  CHECK(rest.told == exit_1 + "\n");
  CHECK(rest.code == 1001);
  one.raw().close();
  stopper.join();
}

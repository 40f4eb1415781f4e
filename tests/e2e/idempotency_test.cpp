#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <csignal>
#include <cstdlib>
#include <fstream>

using namespace insula::test;

namespace {

std::string with_key(const std::string& key, const std::string& more = {}) {
  return "Idempotency-Key: " + key + "\r\n" + more;
}

std::string after(const std::string& id) {
  return "Last-Event-ID: " + id + "\r\n";
}

std::string in(const std::string& session) {
  return "Session-Id: " + session + "\r\n";
}

exec_stream open_once(const node& it, const std::string& key, const std::string& script,
                      const std::string& fields = {}, std::string_view more = {}) {
  return exec_stream{it.port(), "a", exec_body({"bash", "-c", script}, more),
                     with_key(key, fields)};
}

exec_outcome run_once(const node& it, const std::string& key, const std::string& script,
                      const std::string& fields = {}, std::string_view more = {}) {
  return open_once(it, key, script, fields, more).rest();
}

exec_stream open_in(const node& it, const std::string& key, const std::string& script,
                    const std::string& fields = {}) {
  return exec_stream{it.port(), "a", exec_body({"eval", script}), with_key(key, in("s") + fields)};
}

/// How often a script that does so has run: each time it adds a line.
constexpr auto counts = "echo ran >> count; ";
std::string times_run(const node& it) {
  return it.sh("a", "cat count 2> /dev/null | wc -l").out;
}

std::string numbers(int last) {
  std::string text;
  for (int i = 0; i <= last; ++i)
    text += std::to_string(i) + "\n";
  return text;
}

/// A client that comes again each time it is cut, and goes on where it was.
struct reader {
  std::string out, err, last;
  std::optional<int> exit_code;
  std::string error;
  int status = 0;

  /// Up to the end of one stream, or until there is so much.
  void read(exec_stream& from, std::size_t most = std::string::npos) {
    status = from.head().status;
    while (out.size() < most) {
      const auto event = from.next();
      if (!event)
        return;
      REQUIRE_FALSE(event->id.empty());
      last = event->id;
      if (event->name == "stdout")
        out += event->data;
      else if (event->name == "stderr")
        err += event->data;
      else if (event->name == "exit")
        exit_code = std::stoi(event->data.substr(13));
      else
        error = event->data;
    }
  }
  std::string fields() const { return last.empty() ? "" : after(last); }
};

} // namespace

TEST_CASE("a command with a key runs once, and everybody gets its whole stream", "[idempotency]") {
  node it;
  const std::string script = std::string{counts} + "echo out; echo err >&2; exit 3";
  const auto first = run_once(it, "k", script);
  CHECK(first.exit_code == 3);
  CHECK(first.out == "out\n");
  CHECK(first.err == "err\n");
  for (const auto& event : first.events)
    CHECK_FALSE(event.id.empty());
  const auto again = run_once(it, "k", script);
  CHECK(again.out == first.out);
  CHECK(again.err == first.err);
  CHECK(again.exit_code == 3);
  CHECK(times_run(it) == "1\n");
  // Behind each of its events comes the rest.
  std::string out = first.out, err = first.err;
  for (const auto& event : first.events) {
    const auto rest = run_once(it, "k", script, after(event.id));
    CHECK(rest.exit_code == 3);
    if (event.name != "exit")
      (event.name == "stdout" ? out : err).erase(0, event.data.size());
    CHECK(rest.out == out);
    CHECK(rest.err == err);
  }
  // Another key is another command, and without one nothing has an id.
  CHECK(run_once(it, "other", script).exit_code == 3);
  CHECK(times_run(it) == "2\n");
  for (const auto& event : it.sh("a", "echo plain").events)
    CHECK(event.id.empty());
}

TEST_CASE("a key that was used for something else is refused", "[idempotency]") {
  node it;
  CHECK(run_once(it, "k", "echo one").out == "one\n");
  const auto other = run_once(it, "k", "echo two");
  CHECK(other.status == 409);
  CHECK(other.refusal.find("\"code\":\"idempotency_conflict\"") != std::string::npos);
  CHECK(run_once(it, "k", "echo one", in("s")).status == 409);
  CHECK(run_once(it, "k", "echo one").out == "one\n");
  // It belongs to the sandbox and to the route.
  CHECK(
    exec_stream{it.port(), "b", exec_body({"bash", "-c", "echo two"}), with_key("k")}.rest().out ==
    "two\n");
  CHECK(it.ask("POST", "/v1/sandbox/a/session", R"({"id":"t"})", with_key("k")).status == 200);
}

TEST_CASE("of two who come with one key for different things at once, one is refused by its status",
          "[idempotency]") {
  node it;
  REQUIRE(it.sh("a", "true").exit_code == 0);
  for (int round = 0; round < 30; ++round) {
    const auto key = std::to_string(round);
    auto one = open_once(it, key, "echo one"), two = open_once(it, key, "echo two");
    const auto first = one.rest(), second = two.rest();
    CHECK(first.status + second.status == 200 + 409);
    CHECK(first.out + second.out == (first.status == 200 ? "one\n" : "two\n"));
  }
}

TEST_CASE("a key is 1 to 255 visible ASCII characters, where it counts", "[idempotency]") {
  node it;
  const auto status = [&](const std::string& key) { return run_once(it, key, "true").status; };
  CHECK(status(std::string(255, '~')) == 200);
  for (const auto& bad : {std::string(256, 'a'), std::string{}, std::string{"a b"},
                          std::string{"\xc3\xa4"}, std::string{"a\tb"}}) {
    CAPTURE(bad);
    const auto answer = run_once(it, bad, "true");
    CHECK(answer.status == 400);
    CHECK(answer.refusal.find("\"code\":\"invalid_request\"") != std::string::npos);
    CHECK(it.ask("POST", "/v1/sandbox", "", with_key(bad)).status == 400);
    CHECK(it.ask("POST", "/v1/sandbox/a/session", "{}", with_key(bad)).status == 400);
    CHECK(it.ask("POST", "/v1/sandbox/a/hydrate", "x", with_key(bad)).status == 400);
    CHECK(it.ask("GET", "/v1/sandbox/a/running", "", with_key(bad)).status == 200);
  }
  CHECK(run_once(it, "k", "true", after("nonsense")).status == 400);
  CHECK(run_once(it, "k", "true", after("4711")).status == 410); // It has never run.
  CHECK(run_once(it, "k", "true").exit_code == 0);
  CHECK(run_once(it, "k", "true", after("4711")).status == 400);
  CHECK(exec_stream{it.port(), "a", exec_body({"true"}), after("nonsense")}.rest().exit_code == 0);
}

TEST_CASE("who comes with the key of a command that runs joins it", "[idempotency]") {
  node it;
  const std::string script =
    std::string{counts} + "echo one; until [ -e go ]; do sleep 0.02; done; echo two";
  auto first = open_once(it, "k", script);
  REQUIRE(first.next());
  auto second = open_once(it, "k", script);
  const auto event = second.next();
  REQUIRE(event);
  CHECK(event->data == "one\n");
  first.connection().abandon(); // Nobody else is cut or let down by that.
  REQUIRE(it.sh("a", "touch go").exit_code == 0);
  const auto rest = second.rest();
  CHECK(rest.out == "two\n");
  CHECK(rest.exit_code == 0);
  CHECK(times_run(it) == "1\n");
  const auto all = at_once(8, [&](std::size_t) { return run_once(it, "both", counts); });
  for (const auto& each : all)
    CHECK(each.exit_code == 0);
  CHECK(times_run(it) == "2\n");
}

TEST_CASE("no byte is lost or comes twice over servers that are killed and replaced",
          "[idempotency][adoption]") {
  node it;
  constexpr int last = 200'000;
  const bool session = GENERATE(false, true);
  CAPTURE(session);
  const auto script = std::string{counts} +
                      "for ((i = 0; i <= 200000; ++i)); do echo $i; ((i % 5000)) || "
                      "sleep 0.05; done; echo done >&2";
  const auto open = [&](const std::string& fields) {
    return session ? open_in(it, "k", script, fields) : open_once(it, "k", script, fields);
  };
  reader client;
  const auto expected = numbers(last);
  for (const int signal : {SIGKILL, SIGTERM, SIGKILL}) {
    auto stream = open(client.fields());
    client.read(stream, client.out.size() + expected.size() / 8);
    it.stop(signal);
    client.read(stream); // What was on its way.
    REQUIRE(client.error.empty());
    it.start();
  }
  auto stream = open(client.fields());
  client.read(stream);
  CHECK(client.exit_code == 0);
  CHECK(client.out == expected);
  CHECK(client.err == "done\n");
  // And once more, all of it, from the next server.
  it.crash_server();
  it.start();
  const auto again = open("").rest();
  CHECK(again.exit_code == 0);
  CHECK(again.out == expected);
  CHECK(again.err == "done\n");
  CHECK(times_run(it) == "1\n");
}

TEST_CASE("a character that is cut by an event comes whole", "[idempotency]") {
  node it;
  const std::string script =
    R"(printf '\xe2\x82'; sleep 0.2; echo err >&2; sleep 0.2; printf '\xac!\n')";
  const auto whole = run_once(it, "k", script);
  CHECK(whole.out == "\xe2\x82\xac!\n");
  REQUIRE(whole.events.size() >= 3);
  REQUIRE(whole.events[0].name == "stderr");
  const auto rest = run_once(it, "k", script, after(whole.events[0].id));
  CHECK(rest.out == "\xe2\x82\xac!\n");
  CHECK(rest.err.empty());
}

TEST_CASE("how a command with a key has ended stays what it was", "[idempotency][adoption]") {
  node it;
  const std::string slow = std::string{counts} + "echo up; sleep 1000";
  const auto first = run_once(it, "k", slow, {}, R"(,"timeout_ms":500)");
  CHECK(first.exit_code == 124);
  CHECK(first.err == "Command timed out after 500ms\n");
  const auto killed = run_once(it, "killed", "kill -9 $$");
  CHECK(killed.exit_code == 137);
  CHECK(open_in(it, "in", "echo in; (exit 7)").rest().exit_code == 7);
  const auto same = [&] {
    const auto again = run_once(it, "k", slow, {}, R"(,"timeout_ms":500)");
    CHECK(again.exit_code == 124);
    CHECK(again.out == "up\n");
    CHECK(again.err == first.err);
    const auto exit_only =
      run_once(it, "k", slow, after(first.events[1].id), R"(,"timeout_ms":500)");
    CHECK(exit_only.exit_code == 124);
    CHECK(exit_only.err.empty());
    const auto dead = run_once(it, "killed", "kill -9 $$");
    CHECK(dead.exit_code == 137);
    CHECK(dead.err == killed.err);
    const auto session = open_in(it, "in", "echo in; (exit 7)").rest();
    CHECK(session.exit_code == 7);
    CHECK(session.out == "in\n");
  };
  same();
  it.crash_server();
  it.start();
  same();
  CHECK(it.stop(SIGTERM) == 0);
  it.start();
  same();
  CHECK(times_run(it) == "1\n");
}

TEST_CASE("a key is forgotten with its sandbox", "[idempotency]") {
  node it;
  const auto first = run_once(it, "k", "echo $$ > pid; echo one");
  REQUIRE(first.exit_code == 0);
  CHECK(it.remove("a") == 204);
  CHECK(run_once(it, "k", "echo $$ > pid; echo one", after(first.events[0].id)).status == 410);
  CHECK(run_once(it, "k", "ls -A; echo two").out == "two\n");
}

TEST_CASE("what has run in a sandbox that is gone is not run again", "[idempotency]") {
  node it;
  CHECK(run_once(it, "k", "echo one").out == "one\n");
  it.crash_both();
  it.start();
  const auto again = run_once(it, "k", "echo one");
  CHECK(again.status == 410);
  CHECK(again.refusal.find("\"code\":\"result_gone\"") != std::string::npos);
  CHECK(run_once(it, "k", "echo two").status == 409);
  CHECK(run_once(it, "new", "echo one").out == "one\n");
}

TEST_CASE("output that is not kept any more is 410", "[idempotency]") {
  node it{"sandbox: {limits: {log: 1MiB}}"};
  const std::string script =
    "echo first; read -rt 0.5 < <(sleep 1); head -c 8000000 /dev/zero | tr '\\0' x; echo last";
  auto stream = open_once(it, "k", script);
  const auto first = stream.next();
  REQUIRE(first);
  const auto rest = stream.rest(); // Whole for whoever reads along.
  CHECK(rest.error.empty());
  CHECK(rest.exit_code == 0);
  CHECK(run_once(it, "k", script).status == 410);
  CHECK(run_once(it, "k", script, after(first->id)).status == 410);
}

namespace {

/// A server that is killed at this step while it answers one request; the next one has none.
struct killed_at {
  explicit killed_at(node& it, const std::string& step, const std::string& script, bool session) {
    it.stop(SIGTERM);
    ::setenv("INSULA_FAILPOINT", step.c_str(), 1);
    it.start();
    ::unsetenv("INSULA_FAILPOINT");
    try {
      auto stream = session ? open_in(it, "k", script) : open_once(it, "k", script);
      seen.read(stream);
    } catch (const std::exception&) {
      // It has gone before there was an answer.
    }
    died = it.stop(SIGCONT) == SIGKILL; // Which does nothing but wait for its end.
    it.start();
  }
  reader seen;
  bool died = false;
};

} // namespace

TEST_CASE("killed at any step, a server leaves a command that runs once or not at all",
          "[idempotency][crash]") {
  const auto [step, session] = GENERATE(table<std::string, bool>({
    {"idempotency.claimed", false},
    {"command.held", false},
    {"idempotency.asked", false},
    {"idempotency.runs", false},
    {"command.ended", false},
    {"command.put_down", false},
    {"idempotency.claimed", true},
    {"command.held", true},
    {"idempotency.asked", true},
    {"idempotency.runs", true},
    {"command.ended", true},
    {"command.put_down", true},
  }));
  CAPTURE(step, session);
  node it;
  REQUIRE(it.sh("a", "true").exit_code == 0);
  const std::string script = std::string{counts} + "echo out; sleep 0.3; echo end";
  killed_at killed{it, step, script, session};
  CHECK(killed.died);
  for (int i = 0; i < 2; ++i) {
    auto stream = session ? open_in(it, "k", script, killed.seen.fields())
                          : open_once(it, "k", script, killed.seen.fields());
    auto client = killed.seen;
    client.read(stream);
    // Where it cannot be known whether or how it has run, that is what is said.
    const bool in_doubt = session && (step == "command.held" || step == "command.ended");
    if (in_doubt && client.exit_code != 0) {
      CHECK((client.status == 410 || !client.error.empty()));
    } else {
      CHECK(client.exit_code == 0);
      CHECK(client.out == "out\nend\n");
    }
  }
  const auto ran = times_run(it);
  CHECK((ran == "1\n" || (session && step == "command.held" && ran == "0\n")));
}

TEST_CASE("a session, a sandbox and an archive with a key are made once", "[idempotency]") {
  node it;
  const auto make = [&](const std::string& key, const std::string& body) {
    return it.ask("POST", "/v1/sandbox/a/session", body, with_key(key));
  };
  const auto first = make("k", R"({"cwd":"/tmp"})");
  REQUIRE(first.status == 200);
  const auto named = make("n", R"({"id":"mine"})");
  CHECK(named.body == R"({"id":"mine"})");
  const auto id = it.ask("POST", "/v1/sandbox", "", with_key("k")).body;
  CHECK(it.ask("POST", "/v1/sandbox", "", with_key("l")).body != id);
  CHECK(it.ask("POST", "/v1/sandbox").body != id);
  REQUIRE(it.sh("a", "mkdir -p d; echo one > d/f").exit_code == 0);
  const auto archive = it.ask("POST", "/v1/sandbox/a/persist").body;
  REQUIRE_FALSE(archive.empty());
  const auto hydrate = [&](const std::string& body) {
    return it.ask("POST", "/v1/sandbox/a/hydrate", body, with_key("k"));
  };
  CHECK(hydrate(archive).status == 200);
  REQUIRE(it.sh("a", "echo two > d/f").exit_code == 0);
  for (int i = 0; i < 2; ++i) {
    const auto again = make("k", R"({"cwd":"/tmp"})");
    CHECK(again.status == 200);
    CHECK(again.body == first.body);
    CHECK(make("n", R"({"id":"mine"})").body == named.body);
    CHECK(make("n", R"({"id":"other"})").status == 409);
    CHECK(it.ask("POST", "/v1/sandbox", "", with_key("k")).body == id);
    CHECK(hydrate(archive).status == 200);
    CHECK(it.sh("a", "cat d/f").out == "two\n"); // It has not been unpacked again.
    CHECK(hydrate(archive + "x").status == 409);
    it.crash_server();
    it.start();
  }
  CHECK(it.ask("DELETE", "/v1/sandbox/a/session/mine").status == 204);
  CHECK(make("n", R"({"id":"mine"})").status == 200);
}

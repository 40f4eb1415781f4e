#include "base/id.hpp"
#include "http/bridge/idempotency.hpp"
#include "http/bridge/stream_position.hpp"
#include "http/sandboxes/keyed_id.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/http_client.hpp"

using namespace insula;
using namespace insula::test;
using http::bridge::stream_position;

namespace {

std::string with_key(const std::string& more = {}) {
  return "Idempotency-Key: k\r\n" + more;
}

exec_outcome run(house& h, const std::string& fields) {
  return test::exec_stream{h.port(), "abc", R"({"argv":["echo","a"]})", fields}.rest();
}

} // namespace

TEST_CASE("a place in a stream is what its id says", "[http][once]") {
  const stream_position plain{1234, {}, {}, false};
  CHECK(plain.text() == "1234");
  const stream_position held{12, "\xe2\x82", "\xc3", false};
  CHECK(held.text() == "12-e282-c3");
  const stream_position told{7, {}, {}, true};
  CHECK(told.text() == "7-end");
  for (const auto& each : {plain, held, told, stream_position{5, {}, "\xf0\x9f\x98", false}})
    CHECK(stream_position::read(each.text()) == each);
  for (const auto* bad : {"", "x", "-1", "1 ", "1-", "1-e", "1-e282", "1-zz-", "1-e2828282-",
                          "1-end ", "99999999999999999999", "1-e282-c3-"}) {
    CAPTURE(bad);
    CHECK_FALSE(stream_position::read(bad));
  }
}

TEST_CASE("the id of a sandbox made with a key is one, and depends on key and secret",
          "[http][once]") {
  const auto id = http::keyed_id("secret", "key");
  CHECK(id.size() == 26);
  CHECK(sandbox_id::parse(id));
  CHECK(http::keyed_id("secret", "key") == id);
  CHECK(http::keyed_id("secret", "other") != id);
  CHECK(http::keyed_id("other", "key") != id);
}

TEST_CASE("events of a command with a key have ids, and those of others none", "[http][once]") {
  house h;
  h.plays().output = {
    {output_stream::out, "\xe2\x82"}, {output_stream::err, "b"}, {output_stream::out, "\xac"}};
  const auto got = run(h, with_key());
  REQUIRE(got.events.size() == 3);
  CHECK(got.events[0] == exec_event{"stderr", "b", "3-e282-"});
  CHECK(got.events[1] == exec_event{"stdout", "\xe2\x82\xac", "4"});
  CHECK(got.events[2] == exec_event{"exit", R"({"exit_code":0})", "4"});
  CHECK(h.last_exec().idempotency.key.size() == 64);
  for (const auto& event : run(h, "").events)
    CHECK(event.id.empty());
  CHECK(h.last_exec().idempotency.key.empty());
}

TEST_CASE("a stream goes on behind the event that is named", "[http][once]") {
  house h;
  h.plays().output = {
    {output_stream::out, "\xe2\x82"}, {output_stream::err, "b"}, {output_stream::out, "\xac"}};
  h.plays().end = process_end{.exit_code = 143, .timed_out = true, .timeout_ms = 5};
  const auto whole = run(h, with_key());
  h.plays().known_process = true;
  h.plays().extent = {0, 4};
  const auto rest = run(h, with_key("Last-Event-ID: 3-e282-\r\n"));
  CHECK(rest.out == "\xe2\x82\xac");
  CHECK(rest.err == "Command timed out after 5ms\n");
  CHECK(rest.exit_code == 124);
  REQUIRE(whole.events.size() == 4);
  CHECK(whole.events[2].id == "4-end");
  const auto end = run(h, with_key("Last-Event-ID: 4-end\r\n"));
  CHECK(end.err.empty());
  CHECK(end.exit_code == 124);
  CHECK(run(h, with_key("Last-Event-ID: 5\r\n")).status == 400);
  h.plays().extent = {3, 4};
  CHECK(run(h, with_key("Last-Event-ID: 2\r\n")).status == 410);
  CHECK(run(h, with_key()).status == 410);
}

TEST_CASE("what cannot be had of a command with a key is said by the status", "[http][once]") {
  house h;
  h.plays().result_error = error{errc::idempotency_conflict, "used"};
  auto got = run(h, with_key());
  CHECK(got.status == 409);
  CHECK(got.refusal == R"({"error":"used","code":"idempotency_conflict"})");
  h.plays().result_error = error{errc::result_gone, "gone"};
  got = run(h, with_key());
  CHECK(got.status == 410);
  CHECK(got.refusal == R"({"error":"gone","code":"result_gone"})");
  h.plays().result_error.reset();
  CHECK(run(h, with_key("Last-Event-ID: 5\r\n")).status == 410); // Nothing is known of it.
  CHECK(run(h, with_key("Last-Event-ID: 0\r\n")).exit_code == 0);
}

TEST_CASE("a stream with a key is cut where its client can ask again", "[http][once]") {
  house h;
  h.plays().exec_error = error{errc::sandbox_not_running, "the node is going down"};
  auto got = run(h, with_key());
  CHECK((got.status == 200 || got.status == 0)); // Its head may have left by then.
  CHECK_FALSE(got.complete);
  CHECK(got.error.empty());
  h.plays().exec_error = error{errc::node_unreachable, "the next server has it"};
  got = run(h, with_key());
  CHECK_FALSE(got.complete);
  CHECK(got.error.empty());
  CHECK(run(h, "").error.find("exec_error") != std::string::npos); // Who cannot is told.
  h.plays().exec_error.reset();
  h.plays().output = {{output_stream::out, "a"}};
  h.plays().end.reset();
  h.plays().read_error = error{errc::node_unreachable, "the node is going down"};
  got = run(h, with_key());
  CHECK(got.out == "a");
  CHECK_FALSE(got.complete);
  CHECK(got.error.empty());
  got = run(h, "");
  CHECK_FALSE(got.error.empty()); // Who cannot is told.
}

TEST_CASE("a session without an id of its own has the same one for the same key", "[http][once]") {
  house h;
  const auto make = [&](const std::string& fields) {
    return http_ask(h.port(), "POST", "/v1/sandbox/abc/session", "{}", fields).body;
  };
  CHECK(make(with_key()) == make(with_key()));
  CHECK(make(with_key()) != make("Idempotency-Key: l\r\n"));
  CHECK(make("") != make(""));
}

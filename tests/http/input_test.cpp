// How a command's standard input is asked for and answered, by each API that has it.
#include "http/vercel/objects_json.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace insula;
using namespace insula::test;

namespace {

const std::string exec_path = "/v1/sandbox/abc/exec";
const std::string cat = R"({"argv":["cat"]})";
const std::string key = "Idempotency-Key: k\r\n";
const std::string open_input = "Insula-Stdin: open\r\n";

answer exec(house& h, const std::string& fields) {
  return ask(h.port(), "POST", exec_path, cat, fields);
}

answer write(house& h, const std::string& query, const std::string& bytes = {}) {
  return ask(h.port(), "POST", exec_path + "/k/stdin" + query, bytes);
}

/// The last thing that the sandbox has been asked for.
std::string last_heard(house& h) {
  const auto all = h.heard().all();
  return all.empty() ? "" : all.back();
}

const std::string session = "sbx_" + std::string(26, 'a') + "1";
const std::string command = "cmd_0123456789abcdef0123456789abcdef";
const std::string vercel_path = "/v2/sandboxes/sessions/" + session + "/cmd/" + command + "/stdin";

command_state known_command() {
  command_state is;
  is.known = true;
  is.text = http::vercel::text_of(
    http::vercel::command_view{command, "cat", {}, "/vercel/sandbox", session, 1});
  return is;
}

answer post(house& h, const std::string& body) {
  return ask(h.port(), "POST", vercel_path, body);
}

bool has(const answer& got, const std::string& part) {
  return got.body.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("an exec has an input only if it asks for one", "[http][input]") {
  house h;
  CHECK(exec(h, key).status == 200);
  CHECK_FALSE(h.last_exec().input);
  const auto digest = h.last_exec().idempotency.digest;
  CHECK(exec(h, key + open_input).status == 200);
  CHECK(h.last_exec().input);
  CHECK(h.last_exec().idempotency.digest != digest);
  CHECK(exec(h, open_input).status == 400);
  CHECK(exec(h, key + "Insula-Stdin: yes\r\n").status == 400);
  CHECK(exec(h, key + open_input + "Session-Id: s\r\n").status == 400);
}

TEST_CASE("a piece of input goes to the command of its key", "[http][input]") {
  house h;
  REQUIRE(exec(h, key + open_input).status == 200);
  const auto kept_as = h.last_exec().idempotency.key;
  h.plays().input = {7, input_state::taken};
  auto got = write(h, "?offset=3&close=true", "text");
  CHECK(got.status == 200);
  CHECK(got.body == R"({"taken":7})");
  CHECK(last_heard(h) == "write_input " + kept_as + " 3 \"text\" closes");
  CHECK(write(h, "").status == 200);
  CHECK(last_heard(h) == "write_input " + kept_as + " - \"\"");

  const auto told = [&](input_state state) {
    h.plays().input = {7, state};
    got = write(h, "?offset=3", "text");
    return got.status;
  };
  CHECK(told(input_state::slow) == 504);
  CHECK(has(got, R"("taken":7)"));
  CHECK(told(input_state::ahead) == 409);
  CHECK(has(got, R"("code":"stdin_offset")"));
  CHECK(told(input_state::over) == 410);
  CHECK(told(input_state::crowded) == 429);
  h.plays().input_error = error{errc::not_found, "there is no such command"};
  CHECK(write(h, "").status == 404);
  for (const std::string wrong : {"?offset=-1", "?offset=1x", "?close=1"})
    CHECK(write(h, wrong).status == 400);
  CHECK(write(h, "", std::string(512 * 1024 + 1, 'x')).status == 413);
}

TEST_CASE("Vercel: input comes as base64, with an offset", "[http][input][vercel]") {
  house h;
  h.plays().command = known_command();
  h.plays().input = {9, input_state::taken};
  auto got = post(h, R"({"data":"aGkK","offset":6,"close":true})");
  CHECK(got.status == 200);
  CHECK(has(got, R"("bytesWritten":9)"));
  CHECK(has(got, R"("id":")" + command + "\""));
  CHECK(last_heard(h) == "write_input " + command.substr(4) + " 6 \"hi\n\" closes");
  CHECK(post(h, "{}").status == 200);
  CHECK(last_heard(h) == "write_input " + command.substr(4) + " - \"\"");

  const auto told = [&](input_state state) {
    h.plays().input = {9, state};
    got = post(h, R"({"data":"aGkK","offset":6})");
    return got.status;
  };
  CHECK(told(input_state::slow) == 504);
  CHECK(has(got, R"("bytesWritten":9)"));
  CHECK(told(input_state::ahead) == 409);
  CHECK(told(input_state::over) == 400);
  CHECK(has(got, R"("code":"command_stdin_unavailable")"));
  CHECK(told(input_state::crowded) == 429);
  h.plays().input_error = error{errc::limit_reached, "too much waits"};
  CHECK(post(h, "{}").status == 429);
  for (const std::string wrong :
       {"", "[]", R"({"data":"aGk"})", R"({"data":"a+_="})", R"({"data":7})", R"({"offset":-1})",
        R"({"offset":1.5})", R"({"offset":"1"})", R"({"close":"true"})"})
    CHECK(post(h, wrong).status == 400);
  h.plays().command.known = false;
  CHECK(post(h, "{}").status == 404);
}

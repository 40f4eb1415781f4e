#include "base/limits.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/json/ascii.hpp"
#include "http/json/json.hpp"
#include "http/json/writer.hpp"
#include "tests/support/catch.hpp"

#include <random>

using namespace insula;
using namespace insula::http;

namespace {

std::string why_not(std::string_view text) {
  const auto body = bridge::read_exec_body(text);
  return body ? "accepted" : body.reason().message;
}

const std::string not_json = "Invalid JSON body";
const std::string no_argv = "argv must be a non-empty array";

} // namespace

TEST_CASE("an exec body is read", "[http][json]") {
  const auto body = bridge::read_exec_body(
    R"({"argv":["sh","-c","x"],"timeout_ms":1.5,"cwd":"src","other":{"a":[1]}})");
  REQUIRE(body);
  CHECK(body->argv == std::vector<std::string>{"sh", "-c", "x"});
  CHECK(body->timeout_ms == 1.5);
  CHECK(body->cwd == "src");
}

TEST_CASE("members of the wrong type are ignored where the contract says so", "[http][json]") {
  const auto body = bridge::read_exec_body(R"({"argv":["a",7,1.5],"timeout_ms":"9","cwd":null})");
  REQUIRE(body);
  CHECK(body->argv == std::vector<std::string>{"a", "7", "1.5"});
  CHECK_FALSE(body->timeout_ms);
  CHECK_FALSE(body->cwd);
}

TEST_CASE("of equal members the last counts, and a byte order mark is tolerated", "[http][json]") {
  const auto body = bridge::read_exec_body("\xef\xbb\xbf{\"argv\":[],\"argv\":[\"b\"]}");
  REQUIRE(body);
  CHECK(body->argv == std::vector<std::string>{"b"});
}

TEST_CASE("what is no JSON is refused", "[http][json]") {
  for (const auto* text : {"", " ", "{", "{\"argv\":[\"a\"]", "{\"argv\":[\"a\"]}x", "nul",
                           "{'argv':['a']}", "{\"argv\":[\"\xff\"]}", "\xef\xbb\xbf", "[1,]"})
    CHECK(why_not(text) == not_json);
  CHECK(why_not(std::string_view{"{\"argv\":[\"a\"]}\0x", 16}) == not_json);
}

TEST_CASE("a body without arguments is refused", "[http][json]") {
  for (const auto* text : {"{}", "[]", "\"x\"", "7", "null", "true", R"({"argv":[]})",
                           R"({"argv":"ls"})", R"({"argv":null})", R"({"argv":{}})"})
    CHECK(why_not(text) == no_argv);
  for (const auto* text :
       {R"({"argv":[{}]})", R"({"argv":[null]})", R"({"argv":[true]})", R"({"argv":["a",[]]})"})
    CHECK(why_not(text) == "argv must contain only strings");
}

TEST_CASE("the number of arguments has a ceiling, which stops the reader", "[http][json]") {
  const auto elements = [](std::size_t count) {
    std::string list = "0";
    for (std::size_t i = 1; i < count; ++i)
      list += ",0";
    return list;
  };
  CHECK(limits::argv_elements == 65'536);
  const auto most = bridge::read_exec_body("{\"argv\":[" + elements(65'536) + "]}");
  REQUIRE(most);
  CHECK(most->argv.size() == 65'536);
  const std::string too_many = "argv must have at most 65536 elements";
  CHECK(why_not("{\"argv\":[" + elements(65'537) + "]}") == too_many);
  CHECK(why_not("{\"argv\":[" + elements(65'537) + "}") == too_many); // It reads no further.
  CHECK(why_not("{\"argv\":[\"a\"],\"other\":[" + elements(100'000) + "]}") == "accepted");
}

TEST_CASE("only members of the outermost object count, and their last value", "[http][json]") {
  CHECK(why_not(R"([{"argv":["a"]}])") == no_argv);
  CHECK(why_not(R"({"x":{"argv":["a"]}})") == no_argv);
  CHECK(why_not(R"({"argv":["a"],"argv":null})") == no_argv);
  CHECK(why_not(R"({"argv":["a"],"argv":{"argv":["b"]}})") == no_argv);
  CHECK(why_not(R"({"argv":[["a"]]})") == "argv must contain only strings");
  CHECK(why_not(R"({"argv":[{"argv":["a"]}],"cwd":"x"})") == "argv must contain only strings");
  const auto body = bridge::read_exec_body(
    R"({"argv":[{}],"argv":["a"],"x":["b",{"cwd":"c"}],"timeout_ms":1,"timeout_ms":"2",)"
    R"("cwd":"x","cwd":["y"]})");
  REQUIRE(body);
  CHECK(body->argv == std::vector<std::string>{"a"});
  CHECK_FALSE(body->timeout_ms);
  CHECK_FALSE(body->cwd);
}

TEST_CASE("deep nesting is refused without recursion", "[http][json]") {
  CHECK(why_not(std::string(1'000'000, '[')) == not_json);
  CHECK(why_not("{\"argv\":" + std::string(1'000'000, '[')) == not_json);
  std::string objects;
  for (int i = 0; i < 100'000; ++i)
    objects += "{\"a\":";
  CHECK(why_not(objects) == not_json);
  const std::string deep = std::string(60, '[') + std::string(60, ']');
  CHECK(why_not("{\"argv\":[\"a\"],\"x\":" + deep + "}") == "accepted");
}

TEST_CASE("a reader survives whatever is done to a body", "[http][json][property]") {
  const auto seed = GENERATE(take(2000, random(0u, 10'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  std::string text =
    R"({"argv":["a\u00e4","b"],"timeout_ms":1e3,"cwd":"x","y":[[{"z":null}],-0.5]})";
  for (unsigned n = 1 + rng() % 6; n > 0; --n) {
    const auto at = rng() % text.size();
    switch (rng() % 3) {
      case 0: text[at] = static_cast<char>(rng()); break;
      case 1: text.erase(at, 1 + rng() % 4); break;
      default: text.insert(at, 1, "{}[]\",:\\u0"[rng() % 10]);
    }
    if (text.empty())
      text = "x";
  }
  const auto body = bridge::read_exec_body(text);
  if (body)
    CHECK_FALSE(body->argv.empty());
}

TEST_CASE("numbers are printed as JavaScript does", "[http][json]") {
  CHECK(json::number_text(1000) == "1000");
  CHECK(json::number_text(100000) == "100000");
  CHECK(json::number_text(1.5) == "1.5");
  CHECK(json::number_text(0) == "0");
  CHECK(json::number_text(-0.0) == "0");
  CHECK(json::number_text(-5) == "-5");
  CHECK(json::number_text(0.1) == "0.1");
  CHECK(json::number_text(1e21) == "1e+21");
}

TEST_CASE("a terminal's control message is a resize, nothing, or a mistake", "[http][json]") {
  using kind = bridge::terminal_control::kind;
  const auto kind_of = [](std::string_view text) {
    return bridge::read_terminal_control(text).what;
  };
  const auto said = bridge::read_terminal_control(
    R"({"cols":1,"cols":132.5,"rows":-5e1,"type":"exit","type":"resize","more":{"cols":7}})");
  CHECK(said.what == kind::resize);
  CHECK(said.columns == 132.5);
  CHECK(said.rows == -50);
  for (const auto* text :
       {R"({"type":"resize","cols":80})", R"({"type":"resize","cols":80,"rows":""})",
        R"({"type":"resize","cols":80,"rows":[1]})", R"({"type":"resize","cols":80,"rows":null})",
        "null", " null ", "", "{",
        R"({"type":"resize","cols":80,"rows":24} )"
        "x",
        "resize"}) {
    CAPTURE(text);
    CHECK(kind_of(text) == kind::malformed);
  }
  CHECK(kind_of(std::string(200, '[') + std::string(200, ']')) == kind::malformed);
  for (const auto* text : {"{}", "[]", "[null]", "1", "true", "\"resize\"", R"({"type":"Resize"})",
                           R"({"type":null})", R"({"type":["resize"],"cols":1,"rows":1})",
                           R"([{"type":"resize"}])", R"({"in":{"type":"resize"}})"}) {
    CAPTURE(text);
    CHECK(kind_of(text) == kind::ignored);
  }
}

TEST_CASE("answers are compact", "[http][json]") {
  CHECK(bridge::write_terminal_ready() == R"({"type":"ready"})");
  CHECK(bridge::write_terminal_exit(0, {}) == R"({"type":"exit","code":0})");
  CHECK(bridge::write_terminal_exit(143, "SIGTERM") ==
        R"({"type":"exit","code":143,"signal":"SIGTERM"})");
  CHECK(bridge::write_terminal_error("no") == R"({"type":"error","message":"no"})");
  CHECK(json::write_error("a \"b\"\n\xff", "c") ==
        "{\"error\":\"a \\\"b\\\"\\n\xef\xbf\xbd\",\"code\":\"c\"}");
  CHECK(bridge::write_id("abc") == R"({"id":"abc"})");
  CHECK(bridge::write_running(false) == R"({"running":false})");
  CHECK(json::write_ok() == R"({"ok":true})");
  CHECK(bridge::write_missing_parts({"a", "b"}) == R"({"ok":false,"errors":["a","b"]})");
  CHECK(bridge::write_exit_code(-1) == R"({"exit_code":-1})");
}

TEST_CASE("long texts are escaped as the writer does it", "[http][json]") {
  const auto check = [](const std::string& bytes) {
    json::ascii_writer slow;
    slow.text(bytes);
    std::string fast = "\"";
    json::append_ascii(fast, bytes);
    fast += '"';
    if (fast != slow.view()) // Not each of them: it takes longer than the test.
      CHECK(fast == slow.view());
  };
  for (int byte = 0; byte < 256; ++byte)
    for (const std::size_t before : {0, 1, 7, 8, 9, 15, 16})
      check(std::string(before, 'x') + static_cast<char>(byte) + std::string(9, 'y'));
  check("");
  std::mt19937 rng{7};
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes;
    for (auto n = rng() % 60; n > 0; --n)
      switch (rng() % 8) {
        case 0: bytes += static_cast<char>(rng()); break;
        case 1: bytes += static_cast<char>(rng() % 0x20); break;
        case 2: bytes += "\xc3\xa9"; break;
        case 3: bytes += "\xed\xa0\x80"; break; // Half of a surrogate pair is no UTF-8.
        case 4: bytes += "\xf0\x9f\x98\x80"; break;
        case 5: bytes += "\xf4\x90\x80\x80"; break;
        default: bytes += static_cast<char>(' ' + rng() % 0x60); break;
      }
    check(bytes);
  }
  std::string to = "kept ";
  json::append_ascii(to, "a\nb");
  CHECK(to == "kept a\\nb");
}

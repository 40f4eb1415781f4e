#include "benchmarks/load/bridge.hpp"
#include "benchmarks/load/event_parser.hpp"
#include "benchmarks/load/pattern.hpp"
#include "benchmarks/load/scenario.hpp"
#include "benchmarks/load/url.hpp"
#include "tests/support/catch.hpp"

#include <random>
#include <utility>
#include <vector>

using namespace insula;
using namespace insula::load;

namespace {

using events = std::vector<std::pair<std::string, std::string>>;

/// The same text, cut at random places.
events parse_in_pieces(const std::string& text, std::mt19937& random) {
  events all;
  event_parser parser{
    [&all](std::string_view name, std::string_view data) { all.emplace_back(name, data); }};
  for (std::size_t at = 0; at < text.size();) {
    const auto size = std::min<std::size_t>(random() % 7, text.size() - at);
    CHECK(parser.feed(std::string_view{text}.substr(at, size)));
    at += size;
  }
  CHECK_FALSE(parser.inside());
  return all;
}

} // namespace

TEST_CASE("events are the same however their stream is cut", "[load]") {
  const auto seed = GENERATE(take(50, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 random{seed};
  const std::string text = ":\n\nevent: stdout\ndata: YQo=\n\nevent: stderr\r\ndata:b\r\n\r\n"
                           "id: 7\nevent: exit\ndata: {\"exit_code\":\ndata: 0}\n\n";
  CHECK(parse_in_pieces(text, random) ==
        events{{"stdout", "YQo="}, {"stderr", "b"}, {"exit", "{\"exit_code\":\n0}"}});
}

TEST_CASE("an event that never ends is given up", "[load]") {
  event_parser parser{[](std::string_view, std::string_view) {}};
  const std::string piece(1 << 20, 'x');
  int taken = 0;
  while (parser.feed(piece))
    REQUIRE(++taken < 100);
  CHECK(taken == 16);
}

TEST_CASE("base URLs", "[load]") {
  const auto plain = parse_url("http://127.0.0.1:8787");
  REQUIRE(plain);
  CHECK_FALSE(plain->tls);
  CHECK(plain->host == "127.0.0.1");
  CHECK(plain->port == 8787);
  CHECK(plain->prefix.empty());
  CHECK(plain->is_loopback());
  const auto far = parse_url("https://box.example/bridge/v2//");
  REQUIRE(far);
  CHECK(far->tls);
  CHECK(far->port == 443);
  CHECK(far->prefix == "/bridge/v2");
  CHECK(far->authority() == "box.example");
  CHECK_FALSE(far->is_loopback());
  const auto six = parse_url("http://[::1]:80/");
  REQUIRE(six);
  CHECK(six->host == "::1");
  CHECK(six->text() == "http://[::1]");
  for (const auto* wrong :
       {"", "127.0.0.1:8787", "ftp://a", "http://", "http://:80", "http://a:0", "http://a:65536",
        "http://a:8x", "http://a b", "http://[::1", "http://[::1]x", "http://u@a", "http://a?x"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_url(wrong));
  }
}

TEST_CASE("a pattern is found again, and nothing else passes for it", "[load]") {
  const pattern file{5, 3'000'000};
  const auto text = file.text();
  CHECK(text.size() == file.size());
  CHECK(file.matches(0, text));
  CHECK(file.matches(1'048'570, std::string_view{text}.substr(1'048'570, 100)));
  CHECK_FALSE(file.matches(0, std::string_view{text}.substr(1)));
  CHECK_FALSE(file.matches(0, text + "x"));
  CHECK_FALSE(pattern(6, file.size()).matches(0, text));
  CHECK(file.at(file.size()).empty());
}

TEST_CASE("metrics are found by their whole name, with their labels", "[load]") {
  const std::string text = "# HELP insula_build_info What it is.\n"
                           "insula_build_info_other{version=\"9\"} 2\n"
                           "insula_build_info{version=\"0.1.0\",note=\"a \\\"b\\\"\"} 1\n"
                           "process_resident_memory_bytes 1.5e+06\n";
  const auto info = find_metric(text, "insula_build_info");
  REQUIRE(info);
  CHECK(info->labels ==
        std::map<std::string, std::string>{{"version", "0.1.0"}, {"note", "a \"b\""}});
  const auto memory = find_metric(text, "process_resident_memory_bytes");
  REQUIRE(memory);
  CHECK(memory->value == 1.5e6);
  CHECK_FALSE(find_metric(text, "process_resident"));
  CHECK_FALSE(find_metric("", "a"));
  CHECK_FALSE(find_metric("a{b=\"c", "a"));
}

TEST_CASE("the body of an exec escapes what JSON wants escaped", "[load]") {
  CHECK(exec_body({"sh", "-c", "echo \"a\"\n"}) == R"({"argv":["sh","-c","echo \"a\"\n"]})");
}

TEST_CASE("lengths of time", "[load]") {
  CHECK(parse_seconds("10") == 10);
  CHECK(parse_seconds("1.5s") == 1.5);
  CHECK(parse_seconds("500ms") == 0.5);
  CHECK(parse_seconds("2m") == 120);
  CHECK(parse_seconds("1h") == 3600);
  CHECK(parse_seconds("0") == 0);
  for (const auto* wrong : {"", "s", "-1", "nan", "inf", "1e99", "8d", "1 s", "999h"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_seconds(wrong));
  }
}

TEST_CASE("a scenario's parameters are set by name, and by scenario and name", "[load]") {
  const auto* what = find_scenario("exec-open");
  REQUIRE(what != nullptr);
  const auto plain = settings_of(*what, false, {});
  REQUIRE(plain);
  CHECK(plain->at("rate") == "50");
  CHECK(settings_of(*what, true, {})->at("rate") == "20");
  const auto set = settings_of(*what, true, {{"rate", "7"}, {"exec-open.sandboxes", "2"}});
  REQUIRE(set);
  CHECK(set->at("rate") == "7");
  CHECK(set->at("sandboxes") == "2");
  CHECK(settings_of(*what, true, {{"rate", "7"}, {"exec-open.rate", "8"}})->at("rate") == "8");
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"rate", "0"},
                                                        {"rate", "fast"},
                                                        {"rate", "inf"},
                                                        {"rate", "1e9"},
                                                        {"sandboxes", "0"},
                                                        {"duration", "-1"},
                                                        {"sandboxes", "1.5"}}) {
    CAPTURE(name, value);
    const auto wrong = settings_of(*what, false, {{name, value}});
    REQUIRE_FALSE(wrong);
    CHECK(wrong.reason().message.find("exec-open." + name) != std::string::npos);
  }
}

TEST_CASE("how many others there are may be none", "[load]") {
  const auto* what = find_scenario("pty-echo");
  REQUIRE(what != nullptr);
  CHECK(settings_of(*what, false, {{"others", "0,7"}})->at("others") == "0,7");
  for (const auto* wrong : {"", ",", "0,x", "-1", "1.5"}) {
    CAPTURE(wrong);
    CHECK_FALSE(settings_of(*what, false, {{"others", wrong}}));
  }
  CHECK_FALSE(settings_of(*find_scenario("growth"), false, {{"live", "0,7"}}));
}

TEST_CASE("every scenario says what it is, and its own defaults are good", "[load]") {
  for (const auto& each : all_scenarios()) {
    CAPTURE(each.name);
    CHECK(std::string_view{each.about}.size() > 20);
    CHECK(find_scenario(each.name) == &each);
    for (const bool quick : {false, true})
      CHECK(settings_of(each, quick, {}));
  }
  CHECK(find_scenario("nothing") == nullptr);
}

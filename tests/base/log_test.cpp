#include "base/log.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/stderr_of.hpp"

#include <regex>
#include <string>
#include <thread>

using namespace insula;
using insula::test::stderr_of;

TEST_CASE("an event is one line with its time, level and fields", "[base][log]") {
  const auto line = stderr_of([] { log::info("sandbox.ready", {{"id", "abc"}, {"ms", 4}}); });
  const std::regex form{
    R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info sandbox\.ready id=abc ms=4\n)"};
  CHECK(std::regex_match(line, form));
}

TEST_CASE("no value can break out of its line or its quotes", "[base][log]") {
  const auto line = stderr_of([] { log::error("x", {{"why", "a \"b\"\nc=d\\"}, {"empty", ""}}); });
  CHECK(line.substr(line.find(" error ")) == " error x why=\"a \\\"b\\\"?c=d\\\\\" empty=\"\"\n");
}

TEST_CASE("what lies below the level is dropped", "[base][log]") {
  CHECK(stderr_of([] { log::debug("quiet"); }).empty());
  log::set_level(log::level::debug);
  CHECK_FALSE(stderr_of([] { log::debug("loud"); }).empty());
  log::set_level(log::level::info);
}

TEST_CASE("a thread can have a level of its own for a while", "[base][log]") {
  log::set_level(log::level::error);
  {
    const log::level_of_thread own{log::level::info};
    CHECK_FALSE(stderr_of([] { log::info("own"); }).empty());
    CHECK(stderr_of([] { log::debug("below"); }).empty());
    CHECK(stderr_of([] { std::thread{[] { log::info("another"); }}.join(); }).empty());
  }
  CHECK(stderr_of([] { log::info("over"); }).empty());
  log::set_level(log::level::info);
}

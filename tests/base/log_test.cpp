#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "tests/support/catch.hpp"

#include <regex>
#include <string>
#include <unistd.h>

using namespace insula;

namespace {

/// What is written to stderr while `what` runs.
template <class What>
std::string stderr_of(What&& what) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const unique_fd in{ends[0]};
  unique_fd out{ends[1]};
  const unique_fd before{::dup(STDERR_FILENO)};
  ::dup2(out.get(), STDERR_FILENO);
  what();
  ::dup2(before.get(), STDERR_FILENO);
  out.reset();
  std::string text(4096, '\0');
  text.resize(
    static_cast<std::size_t>(std::max<ssize_t>(::read(in.get(), text.data(), text.size()), 0)));
  return text;
}

} // namespace

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

// What APIs say of a sandbox: each has a text of its own, and changes no other one's.
#include "actors/sandbox_list.hpp"
#include "actors/sandbox_metadata.hpp"
#include "base/limits.hpp"
#include "tests/actors/fixture.hpp"
#include "tests/contract/metadata_contract.hpp"
#include "tests/support/store_calls.hpp"

using namespace insula;
using namespace insula::actors;
using namespace insula::test;

namespace {

sandbox_description change(small_node& node, const sandbox_object_actor& box, metadata_change to) {
  redefine_sandbox message;
  message.metadata = std::move(to);
  return node.sys.ask<sandbox_description>(box, message).value();
}

sandbox_description look(small_node& node, const sandbox_object_actor& box) {
  return node.sys.ask<sandbox_description>(box, redefine_sandbox{}).value();
}

} // namespace

TEST_CASE("each API has metadata of its own, and changes it by compare-and-set",
          "[actors][metadata]") {
  small_node node;
  const auto box = node.make_sandbox();
  check_metadata_contract(
    [&](const auto& message) { return node.sys.ask<sandbox_description>(box, message).value(); });
  CHECK(node.store.value("abc", "metadata/one") == "1c");
  CHECK(node.store.value("abc", "metadata/two") == "2b");
  CHECK(node.store.value("abc", "metadata/three") == "3b");
  const auto page = node.store.disk.scan(sandbox_list, {}, 1);
  CHECK(read_line(page->lines.at(0)).is.metadata == look(node, box).metadata);
}

TEST_CASE("the one text of an older record is OpenSandbox's", "[actors][metadata]") {
  small_node node;
  node.leases.last = 10;
  REQUIRE(commit_now(node.store.disk,
                     {"abc", 5, {{"created_ms", "7"}, {"image", "host"}, {"about", "older"}}}));
  const auto box = node.make_sandbox();
  CHECK(look(node, box).metadata == api_metadata{{"opensandbox", "older"}});
  SECTION("it changes that by compare-and-set") {
    CHECK(change(node, box, {"opensandbox", "new", "not it"}).metadata.at("opensandbox") ==
          "older");
    CHECK(node.store.value("abc", "about") == "older");
    CHECK(change(node, box, {"opensandbox", "new", "older"}).metadata ==
          api_metadata{{"opensandbox", "new"}});
    CHECK(node.store.value("abc", "about").empty()); // It is kept once.
    CHECK(node.store.value("abc", "metadata/opensandbox") == "new");
  }
  SECTION("another API leaves it alone") {
    CHECK(change(node, box, {"other", "x", ""}).metadata ==
          api_metadata{{"opensandbox", "older"}, {"other", "x"}});
    CHECK(node.store.value("abc", "about") == "older");
  }
  SECTION("it is in the list") {
    change(node, box, {"other", "x"});
    const auto page = node.store.disk.scan(sandbox_list, {}, 1);
    CHECK(read_line(page->lines.at(0)).is.metadata.at("opensandbox") == "older");
  }
  SECTION("it is not taken for a text of today's") {
    CHECK(metadata_of({{"about", "older"}, {"metadata/opensandbox", "new"}}) ==
          api_metadata{{"opensandbox", "new"}});
    CHECK(metadata_of({{"about", ""}}).empty()); // Another API had made it.
  }
}

TEST_CASE("metadata has a ceiling, and an API a name", "[actors][metadata]") {
  small_node node;
  const auto box = node.make_sandbox();
  define_sandbox made;
  const auto code = [&](auto message) {
    return node.sys.ask<sandbox_description>(box, message).reason().code;
  };
  for (const auto& odd : {std::string{}, std::string{"a/b"}, std::string{"A"}, std::string{"a1"},
                          std::string(33, 'a')}) {
    made.metadata = {{odd, "x"}};
    CHECK(code(made) == errc::invalid_request);
  }
  made.metadata = {{"one", std::string(limits::metadata_bytes - 2, 'x')}};
  CHECK(code(made) == errc::invalid_request);
  CHECK_FALSE(look(node, box).exists);
  made.metadata = {{"one", std::string(limits::metadata_bytes - 3, 'x')}};
  CHECK(node.sys.ask<sandbox_description>(box, made).value().exists); // With its line.
  redefine_sandbox more;
  more.metadata = {"two", "x"};
  CHECK(code(more) == errc::invalid_request);
  more.metadata = {"a/b", "x"};
  CHECK(code(more) == errc::invalid_request);
  more.metadata = {"one", "small"};
  CHECK(node.sys.ask<sandbox_description>(box, more).value().exists);
  more.metadata = {std::string(32, 'a'), "x"};
  CHECK(node.sys.ask<sandbox_description>(box, more).value().metadata.at("one") == "small");
}

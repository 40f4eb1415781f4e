#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

using namespace insula::test;

TEST_CASE("at the instance limit a new sandbox is refused until another is deleted", "[capacity]") {
  const node it{"sandbox: {max_instances: 1}"};
  const std::string full =
    R"({"error":"Cannot start container: instance limit reached (1/1). All container slots are in use. Wait for existing containers to stop.","code":"capacity_exceeded"})";
  REQUIRE(it.sh("a", "echo mine > file").exit_code == 0);
  const auto refused = it.ask("POST", "/v1/sandbox/b/exec", exec_body({"true"}));
  CHECK(refused.status == 503);
  CHECK(refused.body == full);
  CHECK(it.ask("GET", "/v1/sandbox/b/running").body == full);
  CHECK(it.ask("GET", "/v1/sandbox/b/running").status == 503);
  CHECK(it.ask("PUT", "/v1/sandbox/b/file/workspace/x", "x").body == full);
  CHECK(it.ask("GET", "/v1/sandbox/b/file/workspace/x").body == full);
  CHECK(it.ask("GET", "/health").status == 200); // It says nothing about capacity.
  CHECK(it.sh("a", "cat file").out == "mine\n"); // The one that has a place keeps it.

  CHECK(it.remove("b") == 204); // Nothing was there, and nothing is freed.
  CHECK(it.ask("GET", "/v1/sandbox/b/running").status == 503);
  CHECK(it.remove("a") == 204);
  CHECK(it.sh("b", "true").exit_code == 0);
  CHECK(it.ask("GET", "/v1/sandbox/a/running").body == full);

  // Twenty at once for the one place: it is never exceeded, and one gets it.
  CHECK(it.remove("b") == 204);
  const std::string ids = "abcdefghijklmnopqrst";
  const auto all =
    at_once(ids.size(), [&](std::size_t i) { return it.exec(ids.substr(i, 1), {"true"}).status; });
  CHECK(std::count(all.begin(), all.end(), 200) == 1);
  CHECK(std::count(all.begin(), all.end(), 503) == 19);
}

TEST_CASE("while the machine has less memory than it keeps, new sandboxes are refused",
          "[capacity]") {
  const node it{"node: {memory_reserve: 1TiB}"};
  const auto refused = it.ask("POST", "/v1/sandbox/b/exec", exec_body({"true"}));
  CHECK(refused.status == 503);
  CHECK(
    refused.body ==
    R"({"error":"Cannot start container: the node's memory is nearly used up. Wait for existing containers to stop.","code":"capacity_exceeded"})");
  CHECK(refused.fields.at("retry-after") == "5");
  CHECK(it.ask("GET", "/health").status == 200);
}

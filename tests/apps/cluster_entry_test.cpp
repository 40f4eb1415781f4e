#include "apps/cluster_entry.hpp"
#include "tests/support/catch.hpp"

using namespace insula;
using namespace std::chrono_literals;

TEST_CASE("what a node says of itself is read as it was said", "[cluster]") {
  const auto read = member_record::parse(member_record{"192.0.2.1:8788", 3, "0.2.0"}.text());
  CHECK(read.address == "192.0.2.1:8788");
  CHECK(read.protocol == 3);
  CHECK(read.build == "0.2.0");
  SECTION("and of the first protocol by those that said only where they were") {
    CHECK(member_record::parse("192.0.2.1").protocol == 1);
  }
  SECTION("and nonsense is no protocol") {
    for (const auto* odd : {"a b", "a -", "a 99999999999"})
      CHECK(member_record::parse(odd).protocol != 1);
  }
}

TEST_CASE("a node is told which other one speaks another protocol", "[cluster]") {
  const member_record self{"192.0.2.1:8788", 1, "0.1.0"};
  CHECK(speaks_as(self, {}));
  CHECK(speaks_as(self, {{"n2", self.text()}, {"n3", "192.0.2.3"}}));
  const auto other = member_record{"192.0.2.3:8788", 2, "0.9.0"}.text();
  const auto refused = speaks_as(self, {{"n2", self.text()}, {"n3", other}});
  REQUIRE_FALSE(refused);
  CHECK(refused.reason().message.starts_with(
    "node n3 speaks protocol 2 (build 0.9.0), this one protocol 1 (build 0.1.0): "));
  CHECK_FALSE(speaks_as(self, {{"n2", "no sense"}}));
}

TEST_CASE("a node may start by a clock that most others have", "[cluster]") {
  CHECK(clock_agrees({}));
  CHECK(clock_agrees({{"a", 10s}, {"b", -10s}}));
  CHECK(clock_agrees({{"a", 0s}, {"b", 600s}}));
  CHECK(clock_agrees({{"a", 0s}, {"b", 600s}, {"c", 0s}}));
  const auto alone = clock_agrees({{"a", -600s}});
  REQUIRE_FALSE(alone);
  CHECK(alone.reason().message.starts_with(
    "its clock is 600 s ahead of that of a, and 10 s are the most that is allowed: "));
  const auto most = clock_agrees({{"a", 0s}, {"b", 11500ms}, {"c", 12s}});
  REQUIRE_FALSE(most);
  CHECK(most.reason().message.starts_with(
    "its clock is 11.5 s behind that of b, and 12 s behind that of c, "));
}

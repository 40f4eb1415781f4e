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

TEST_CASE("versions of etcd that end leases before their time are known", "[cluster]") {
  for (const auto* bad :
       {"3.3.25", "3.4.0", "3.4.23", "3.4.30", "3.5.0", "3.5.9", "3.5.12", "2.3.8"})
    CHECK(fault_of_etcd(bad).find("install 3.4.31, 3.5.13") != std::string::npos);
  for (const auto* good : {"3.4.31", "3.4.44", "3.5.13", "3.5.16", "3.6.0", "3.6.0-rc.1", "4.0.0"})
    CHECK(fault_of_etcd(good).empty());
  for (const auto* odd : {"", "x", "3", "3.4", "3.4.", "3,4,5", "99999999999.1.1"})
    CHECK(fault_of_etcd(odd).empty());
}

TEST_CASE("each node asks its own member of etcd first, or another one than its neighbour",
          "[cluster]") {
  const std::vector<std::string> nodes{"n1", "n2", "n3"};
  using list = std::vector<std::string>;
  const list apart{"https://192.0.2.1:2379", "https://192.0.2.2:2379",
                   "https://[2001:db8::3]:2379"};
  CHECK(endpoints_for("n2", "192.0.2.2", nodes, apart).front() == apart[1]);
  CHECK(endpoints_for("n3", "2001:db8::3", nodes, apart).front() == apart[2]);
  // 192.0.2.2 is not the machine of 192.0.2.22.
  CHECK(endpoints_for("n1", "192.0.2", nodes, apart).front() == apart[0]);
  // Machines without a member, and a single machine with all.
  for (const auto* address : {"192.0.2.9", "127.0.0.1"}) {
    const list shared{"http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"};
    CHECK(endpoints_for("n1", address, nodes, shared) == shared);
    CHECK(endpoints_for("n2", address, nodes, shared) == list{shared[1], shared[2], shared[0]});
    CHECK(endpoints_for("n3", address, nodes, shared) == list{shared[2], shared[0], shared[1]});
  }
  CHECK(endpoints_for("n3", "192.0.2.9", nodes, {"http://one:1"}) == list{"http://one:1"});
  CHECK(endpoints_for("stranger", "192.0.2.9", nodes, apart).size() == 3);
}

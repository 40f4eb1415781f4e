#include "actors/cluster_placement.hpp"
#include "tests/support/catch.hpp"

#include <map>

using namespace insula::actors;

TEST_CASE("a new sandbox goes where there is most room", "[actors][cluster]") {
  const std::vector<node_load> nodes{
    {"a", 90, 100, 0, false}, {"b", 10, 100, 0, false}, {"c", 50, 100, 0, false}};
  for (std::uint64_t random = 0; random < 10; ++random)
    CHECK(place_sandbox(nodes, random) == 1u);
}

TEST_CASE("where it is as good, the first one is taken", "[actors][cluster]") {
  const std::vector<node_load> nodes{
    {"a", 11, 100, 0, false}, {"b", 10, 100, 0, false}, {"c", 12, 100, 0, false}};
  for (std::uint64_t random = 0; random < 10; ++random)
    CHECK(place_sandbox(nodes, random) == 0u);
}

TEST_CASE("warm sandboxes count for more than room", "[actors][cluster]") {
  const std::vector<node_load> nodes{{"a", 0, 100, 0, false}, {"b", 80, 100, 5, false}};
  CHECK(place_sandbox(nodes, 1) == 1u);
}

TEST_CASE("nodes that are full or being drained get nothing", "[actors][cluster]") {
  CHECK(place_sandbox({{"a", 100, 100, 0, false}, {"b", 0, 100, 0, true}}, 0) == std::nullopt);
  CHECK(place_sandbox({{"a", 0, 100, 0, true}, {"b", 99, 100, 0, false}}, 0) == 1u);
  // Full of warm ones, which make room.
  CHECK(place_sandbox({{"a", 100, 100, 100, false}}, 0) == 0u);
  CHECK(place_sandbox({}, 0) == std::nullopt);
}

TEST_CASE("of many nodes a few are looked at, not always the same ones", "[actors][cluster]") {
  std::vector<node_load> nodes{{"a", 100, 100, 0, false}};
  for (int i = 0; i < 20; ++i)
    nodes.push_back({"n" + std::to_string(i), 50, 100, 0, false});
  std::map<std::size_t, int> taken;
  for (std::uint64_t random = 0; random < 100; ++random)
    ++taken[place_sandbox(nodes, random).value()];
  CHECK(taken.size() == 20);
}

TEST_CASE("a node that has just failed is the last to be chosen", "[actors][cluster]") {
  std::vector<node_load> nodes{{"a", 90, 100, 0, false}, {"b", 5, 100, 5, false, true}};
  for (std::uint64_t random = 0; random < 10; ++random)
    CHECK(place_sandbox(nodes, random) == 0u);
  nodes[0].draining = true;
  CHECK(place_sandbox(nodes, 1) == 1u);
  // Many of them do not hide one that works.
  std::vector<node_load> many(20, {"f", 0, 100, 0, false, true});
  many.push_back({"works", 99, 100, 0, false});
  for (std::uint64_t random = 0; random < 40; ++random)
    CHECK(place_sandbox(many, random) == 20u);
}

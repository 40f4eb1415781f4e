#include "actors/cluster_placement.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
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

TEST_CASE("a node that has the image goes before all others", "[actors][cluster][images]") {
  const auto has = [](std::initializer_list<const char*> names) {
    image_signs signs;
    for (const auto* each : names)
      signs.push_back(sign_of(each));
    std::sort(signs.begin(), signs.end());
    return std::make_shared<const image_signs>(std::move(signs));
  };
  std::vector<node_load> nodes(20, {"n", 5, 100, 5, false, false, has({"host"})});
  nodes.push_back({"has", 90, 100, 0, false, false, has({"host", "debian"})});
  nodes.push_back({"older", 50, 100, 0, false});
  const image_signs wanted{sign_of("docker.io/library/debian:12"), sign_of("debian")};
  for (std::uint64_t random = 0; random < 40; ++random)
    CHECK(place_sandbox(nodes, random, wanted) == 20u);

  INFO("of those that have it, the one with most room");
  nodes.push_back({"too", 10, 100, 0, false, false, has({"debian"})});
  for (std::uint64_t random = 0; random < 40; ++random)
    CHECK(place_sandbox(nodes, random, wanted) == 22u);

  INFO("but none that is full, drained or failing");
  nodes[22].failing = true;
  CHECK(place_sandbox(nodes, 1, wanted) == 20u);
  nodes[20].draining = true;
  CHECK(place_sandbox(nodes, 1, wanted) != std::nullopt);
  CHECK(place_sandbox(nodes, 1, wanted) < 20u);

  INFO("an image that no node has goes where there is room");
  CHECK(place_sandbox(nodes, 1, {sign_of("alpine")}) < 20u);
}

#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

using namespace insula::test;

TEST_CASE("three hundred sandboxes come and go, and the server stays as it was", "[endurance]") {
  const node it;
  const auto cycle = [&](std::size_t worker, int from, int to) {
    int good = 0;
    const auto id = "box" + std::string(1, static_cast<char>('a' + worker));
    for (int i = from; i < to; ++i) {
      const auto got = it.sh(id, "echo " + std::to_string(i) + " > f; cat f; ls -A | wc -l",
                             ",\"timeout_ms\":3600000");
      good += got.out == std::to_string(i) + "\n1\n" && got.exit_code == 0;
      good += it.remove(id) == 204;
    }
    return good;
  };
  const auto rounds = [&](int from, int to) {
    CHECK(at_once(3, [&](std::size_t worker) { return cycle(worker, from, to); }) ==
          std::vector<int>(3, 2 * (to - from)));
  };
  constexpr std::uint64_t MiB = 1u << 20;
  rounds(0, 20); // Until everything that is kept for good has been made.
  const auto spawner = it.spawner();
  const auto server_files = open_files(it.pid()), spawner_files = open_files(spawner);
  const auto server_bytes = resident_bytes(it.pid()), spawner_bytes = resident_bytes(spawner);
  rounds(20, 120);
  CHECK(eventually([&] { return open_files(it.pid()) <= server_files + 2; }));
  CHECK(eventually([&] { return open_files(spawner) <= spawner_files; }));
  CHECK(resident_bytes(it.pid()) < server_bytes + 8 * MiB);
  CHECK(resident_bytes(spawner) < spawner_bytes + 2 * MiB);
  CHECK(it.sandbox_groups().empty());
  CHECK(it.processes().size() == node::own_processes);
}

TEST_CASE("five hundred commands with an hour each leave nothing when they are over",
          "[endurance]") {
  const node it;
  const auto commands = [&](int count) {
    for (int i = 0; i < count; ++i)
      REQUIRE(it.exec("a", {"echo", "x"}, ",\"timeout_ms\":3600000").exit_code == 0);
  };
  commands(50);
  const auto files = open_files(it.pid()), of_spawner = open_files(it.spawner());
  commands(500);
  CHECK(eventually([&] { return open_files(it.pid()) <= files + 2; }));
  CHECK(eventually([&] { return open_files(it.spawner()) <= of_spawner + 2; }));
}

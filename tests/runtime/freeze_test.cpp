// Sandboxes that stand still and go on, with this machine's cgroups.
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"
#include "tests/support/live_node.hpp"
#include "tests/support/standing_still.hpp"

#include <csignal>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

std::string own_number() {
  return std::to_string(::getpid());
}

std::string listed(const std::vector<std::string>& traces) {
  std::string text;
  for (const auto& each : traces)
    text += each + "\n";
  return text;
}

} // namespace

TEST_CASE("what runs in a frozen sandbox stands still, and goes on where it was",
          "[runtime][freeze]") {
  live_sandbox box{shared_node()};
  const auto mark = "i = " + own_number(); // Other programs run these tests at the same time.
  auto counting = box.start("echo up; for ((" + mark + "; ; ++i)); do :; done");
  counting.says("up");
  auto reading = box.start("read x < <(sleep 1000); echo never");
  const auto busy = find_process(mark);
  REQUIRE(busy > 0);
  CHECK(eventually([&] { return uses_cpu(busy); }));
  for (int round = 0; round < 20; ++round) {
    REQUIRE(freeze(box));
    if (round == 0)
      CHECK_FALSE(uses_cpu(busy));
    REQUIRE((*box).thaw());
  }
  CHECK(eventually([&] { return uses_cpu(busy); }));
  CHECK(box.run("echo works").out == "works\n");
  REQUIRE(freeze(box));
  CHECK(freeze(box)); // It does so already.
  REQUIRE((*box).thaw());
  REQUIRE((*box).thaw());
  counting.process().signal(SIGTERM);
  CHECK(counting.ended().status != 0);
}

TEST_CASE("what is asked of a frozen sandbox is done once it goes on", "[runtime][freeze]") {
  live_sandbox box{shared_node()};
  REQUIRE(box.run("echo kept > file").exited(0));
  REQUIRE(freeze(box));
  const auto command = "cat file #" + own_number();
  auto late = box.start(command);
  events<bool> answered; // What was asked before has been heard then.
  (*box).ping([&] { answered.tell(true); });
  answered.next();
  CHECK(find_process(command) == 0);
  REQUIRE((*box).thaw());
  CHECK(late.finish().out == "kept\n");
}

TEST_CASE("the agent of a frozen sandbox hears, and its figures can be read", "[runtime][freeze]") {
  live_sandbox box{shared_node()};
  auto sleeping = box.start("echo up; exec sleep 1000");
  sleeping.says("up");
  REQUIRE(freeze(box));
  CHECK((*box).usage().value().processes == 1u);
  sleeping.process().signal(SIGKILL);
  if (shared_node().cgroups().mode() != "v1") { // There, nothing dies before it goes on.
    CHECK(WTERMSIG(sleeping.ended().status) == SIGKILL);
    CHECK((*box).usage().value().processes == 0u);
  }
  REQUIRE((*box).thaw());
  CHECK(WTERMSIG(sleeping.finish().how.status) == SIGKILL);
}

TEST_CASE("who thaws a sandbox that is about to stand still has it running", "[runtime][freeze]") {
  live_sandbox box{shared_node()};
  for (int i = 0; i < 100; ++i) {
    const auto still = std::make_shared<events<bool>>();
    (*box).freeze([still](bool good) { still->tell(good); });
    REQUIRE((*box).thaw());
    still->next(20s); // One answer or the other.
  }
  CHECK(box.run("echo works").out == "works\n");
}

TEST_CASE("a fork bomb can be frozen, thawed and ended", "[runtime][freeze]") {
  live_sandbox box{shared_node()};
  auto bomb = box.start("echo up; bomb() { bomb | bomb & }; bomb; wait; sleep 1000");
  bomb.says("up");
  REQUIRE(eventually([&] { return (*box).usage().value().processes > 50u; }));
  for (int round = 0; round < 5; ++round) {
    REQUIRE(freeze(box));
    const auto before = (*box).usage().value();
    std::this_thread::sleep_for(100ms);
    const auto after = (*box).usage().value();
    CHECK(after.processes.value() <=
          before.processes.value()); // Who died before is buried meanwhile.
    CHECK(after.cpu.value_or(0us) - before.cpu.value_or(0us) < 20ms); // Not counted everywhere.
    REQUIRE((*box).thaw());
  }
  REQUIRE(freeze(box));
  const auto began = std::chrono::steady_clock::now();
  box.destroy();
  CHECK(std::chrono::steady_clock::now() - began < 5s);
}

TEST_CASE("a frozen sandbox that is destroyed leaves nothing, and so does one on its way",
          "[runtime][freeze]") {
  live_node node;
  for (const bool waits : {true, false}) {
    live_sandbox box{node};
    auto sleeping = box.start("echo up; sleep 1000 & exec sleep 1000");
    sleeping.says("up");
    if (waits)
      REQUIRE(freeze(box));
    else
      (*box).freeze([](bool) {});
    box.destroy();
    CHECK(sleeping.ended().lost);
    CHECK_FALSE((*box).thaw());
    CHECK_FALSE(freeze(box));
  }
  const auto tree = node.cgroups();
  for (const auto& each : tree.hierarchies())
    for (const auto& dir : std::filesystem::directory_iterator{each.directory + "/insula-" +
                                                               node.key() + "/sandboxes"})
      CHECK_FALSE(dir.path().filename().string().starts_with("sb-"));
  node.shut_down();
  CHECK(listed(node.leftovers()).empty());
}

TEST_CASE("frozen sandboxes end with their agent, their spawner, or at the next server's start",
          "[runtime][freeze]") {
  live_node node;
  live_sandbox box{node};
  const auto sleep = "sleep 4719." + own_number();
  auto sleeping = box.start("echo up; exec " + sleep);
  sleeping.says("up");
  REQUIRE(freeze(box));
  SECTION("agent") {
    REQUIRE(node.agents().size() == 1);
    ::kill(node.agents()[0], SIGKILL);
    box.wait_until_ended();
    CHECK(sleeping.ended().lost);
  }
  SECTION("spawner") {
    ::kill(node.spawner(), SIGKILL);
    box.wait_until_ended();
    CHECK(sleeping.ended().lost);
    node.serve();
  }
  SECTION("next server, which does not want it") {
    node.engine().hand_over();
    box.let_go();
    node.drop_server();
    node.serve();
    node.engine().disown("test", [] {});
  }
  CHECK(eventually([&] { return find_process(sleep) == 0; }));
  {
    live_sandbox next{node};
    CHECK(next.run("echo works").out == "works\n");
  }
  node.shut_down();
  CHECK(listed(node.leftovers()).empty());
}

TEST_CASE("a frozen sandbox that is adopted stands still until it is thawed", "[runtime][freeze]") {
  live_node node;
  const auto mark = "k = " + own_number();
  {
    live_sandbox box{node};
    auto counting = box.start("echo up; for ((" + mark + "; ; ++k)); do :; done");
    counting.says("up");
    REQUIRE(freeze(box));
    node.engine().hand_over();
    box.let_go();
  }
  node.drop_server();
  node.serve();
  auto box = live_sandbox::adopted(node, "test");
  REQUIRE(box);
  const auto busy = find_process(mark);
  REQUIRE(busy > 0);
  CHECK_FALSE(uses_cpu(busy));
  REQUIRE((**box).thaw());
  CHECK(eventually([&] { return uses_cpu(busy); }));
  CHECK(box->run("echo works").out == "works\n");
  CHECK(freeze(*box)); // And can be frozen again.
}

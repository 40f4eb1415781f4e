// Sandboxes may run for as long as their node has permission.
#include "runtime/spawner_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/live_node.hpp"
#include "tests/support/standing_still.hpp"

#include <chrono>
#include <csignal>
#include <ctime>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

std::chrono::nanoseconds from_now(std::chrono::nanoseconds length) {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec} + length;
}

/// A permission that is over now; the first of its server.
void forbid(live_node& node) {
  node.engine().permit(from_now(-1ms));
  REQUIRE(eventually([&] { return node.cgroups().all_frozen(); }));
}

void allow(live_node& node) {
  node.engine().permit(from_now(1h));
}

bool all_stand_still(const live_node& node) {
  return node.cgroups().all_frozen();
}

/// A command that counts for ever, by a name that no other program has.
struct counter {
  explicit counter(live_sandbox& in, const std::string& name)
      : mark(name + " = " + std::to_string(::getpid()))
      , command(in.start("echo up; for ((" + mark + "; ; ++" + name + ")); do :; done")) {
    command.says("up");
    process = find_process(mark);
    REQUIRE(process > 0);
  }
  bool runs() const {
    return eventually([&] { return uses_cpu(process); });
  }
  bool stands_still() const { return !uses_cpu(process); }

  std::string mark;
  live_command command;
  pid_t process = 0;
};

/// What comes of asking for a sandbox.
struct creation {
  explicit creation(live_node& in) {
    in.engine().create(in.spec(), {[to = made](auto box) { to->tell(std::move(box)); },
                                   [to = failed](error why) { to->tell(std::move(why)); }, [] {}});
  }
  std::shared_ptr<events<std::shared_ptr<sandbox>>> made =
    std::make_shared<events<std::shared_ptr<sandbox>>>();
  std::shared_ptr<events<error>> failed = std::make_shared<events<error>>();
};

std::string listed(const std::vector<std::string>& traces) {
  std::string text;
  for (const auto& each : traces)
    text += each + "\n";
  return text;
}

} // namespace

TEST_CASE("sandboxes stand still once their node's permission has run out, and go on with the next",
          "[runtime][permission]") {
  live_node node;
  live_sandbox one{node}, two{node};
  const counter first{one, "pa"}, second{two, "pb"};
  node.engine().permit(from_now(300ms)); // And not a word more.
  REQUIRE(eventually([&] { return all_stand_still(node); }));
  CHECK(first.stands_still());
  CHECK(second.stands_still());
  const auto command = "cat /dev/null #" + first.mark;
  auto late = one.start(command);
  events<bool> answered; // What was asked before has been heard then.
  (*one).ping([&] { answered.tell(true); });
  answered.next();
  CHECK(find_process(command) == 0);
  allow(node);
  CHECK(first.runs());
  CHECK(second.runs());
  CHECK(late.finish().exited(0));
  CHECK(one.run("echo works").out == "works\n");
}

TEST_CASE("a permission that is renewed in time is not noticed", "[runtime][permission]") {
  live_node node;
  live_sandbox box{node};
  const counter counting{box, "pc"};
  for (int i = 0; i < 20; ++i) {
    node.engine().permit(from_now(1min));
    CHECK(box.run("echo works").out == "works\n");
    CHECK_FALSE(all_stand_still(node));
  }
  node.engine().permit(from_now(-1ms)); // Late on its way: it takes nothing back.
  CHECK(box.run("echo works").out == "works\n");
  CHECK_FALSE(all_stand_still(node));
  node.engine().permit(0ns); // For ever.
  node.engine().permit(from_now(-1ms));
  CHECK(box.run("echo works").out == "works\n");
  CHECK_FALSE(all_stand_still(node));
  CHECK(counting.runs());
}

TEST_CASE("what is frozen by itself stays so over the loss of permission, and what was asked for "
          "meanwhile holds after it",
          "[runtime][permission]") {
  live_node node;
  live_sandbox idle{node}, thawed{node}, frozen{node}, busy{node};
  const counter in_idle{idle, "pd"}, in_thawed{thawed, "pe"}, in_frozen{frozen, "pf"},
    in_busy{busy, "pg"};
  REQUIRE(freeze(idle));
  REQUIRE(freeze(thawed));
  forbid(node);
  REQUIRE((*thawed).thaw());
  CHECK(freeze(frozen));
  for (const auto* each : {&in_idle, &in_thawed, &in_frozen, &in_busy})
    CHECK(each->stands_still());
  allow(node);
  CHECK(in_busy.runs());
  CHECK(in_thawed.runs());
  CHECK(in_idle.stands_still());
  CHECK(in_frozen.stands_still());
  REQUIRE((*idle).thaw());
  REQUIRE((*frozen).thaw());
  CHECK(in_idle.runs());
  CHECK(in_frozen.runs());
}

TEST_CASE("without permission no sandbox is made or claimed", "[runtime][permission]") {
  live_node node;
  live_sandbox warm{node};
  forbid(node);
  const creation refused{node};
  const auto why = refused.failed->next();
  CHECK(why.code == errc::node_unreachable);
  CHECK(why.message.find("may not run sandboxes now") != std::string::npos);

  const auto answer = std::make_shared<events<errc>>();
  (*warm).claim({"somebody", node.spec().limits},
                {[](auto) {}, [answer](const error& said) { answer->tell(said.code); }, [] {}});
  CHECK(answer->next() == errc::node_unreachable);
  allow(node);
  live_sandbox next{node};
  CHECK(next.run("echo works").out == "works\n");
}

TEST_CASE("without permission sandboxes end as ever, and leave nothing", "[runtime][permission]") {
  live_node node;
  live_sandbox busy{node}, idle{node};
  const auto sleep = "sleep 4727." + std::to_string(::getpid());
  auto bomb = busy.start("echo up; bomb() { bomb | bomb & }; bomb; exec " + sleep);
  bomb.says("up");
  auto sleeping = idle.start("echo up; exec " + sleep);
  sleeping.says("up");
  REQUIRE(freeze(idle));
  forbid(node);
  SECTION("deleted") {
    busy.destroy();
    idle.destroy();
    CHECK(bomb.ended().lost);
    CHECK(sleeping.ended().lost);
    CHECK(all_stand_still(node));
    allow(node);
    live_sandbox next{node};
    CHECK(next.run("echo works").out == "works\n");
  }
  SECTION("with their server, which shuts down") {
    node.shut_down();
  }
  SECTION("with their spawner") {
    ::kill(node.spawner(), SIGKILL);
    busy.wait_until_ended();
    idle.wait_until_ended();
    node.serve(); // Another spawner, and no permission has been given to that yet.
    live_sandbox next{node};
    CHECK(next.run("echo works").out == "works\n");
  }
  SECTION("with their agents, and nothing holds them once there is permission") {
    for (const auto agent : node.agents())
      ::kill(agent, SIGKILL);
    allow(node);
    busy.wait_until_ended();
    idle.wait_until_ended();
  }
  CHECK(eventually([&] { return find_process(sleep) == 0; }));
  node.shut_down();
  CHECK(listed(node.leftovers()).empty());
}

TEST_CASE("a permission runs out although its server has gone, and the next server renews it",
          "[runtime][permission]") {
  live_node node;
  const std::string name = "ph";
  pid_t process = 0;
  {
    live_sandbox box{node};
    const counter counting{box, name};
    process = counting.process;
    node.engine().permit(from_now(500ms));
    node.engine().hand_over();
    box.let_go();
  }
  node.drop_server();
  REQUIRE(eventually([&] { return all_stand_still(node); }));
  CHECK_FALSE(uses_cpu(process));
  node.serve();
  auto box = live_sandbox::adopted(node, "test");
  REQUIRE(box);
  REQUIRE((**box).thaw());
  CHECK_FALSE(uses_cpu(process)); // That alone does not have it go on.
  allow(node);
  CHECK(eventually([&] { return uses_cpu(process); }));
  CHECK(box->run("echo works").out == "works\n");
}

TEST_CASE("the first permission of a server counts, whatever the one before it was given",
          "[runtime][permission]") {
  live_node node;
  pid_t process = 0;
  {
    live_sandbox box{node};
    process = counter{box, "pi"}.process;
    node.engine().permit(0ns);
    node.engine().hand_over();
    box.let_go();
  }
  node.drop_server();
  node.serve();
  auto box = live_sandbox::adopted(node, "test");
  REQUIRE(box);
  REQUIRE((**box).thaw());
  CHECK(eventually([&] { return uses_cpu(process); }));
  forbid(node);
  CHECK_FALSE(uses_cpu(process));
  node.engine().permit(0ns);
  CHECK(eventually([&] { return uses_cpu(process); }));
}

TEST_CASE("a server that hears nothing does not keep sandboxes from standing still",
          "[runtime][permission]") {
  live_node node;
  pid_t process = 0;
  {
    live_sandbox box{node};
    process = counter{box, "pj"}.process;
    node.engine().hand_over();
    box.let_go();
  }
  node.drop_server();
  auto link = connect_to_spawner({node.state(), node.key()});
  REQUIRE(link);
  const auto ask = [&](spawner::op what, std::uint64_t name) {
    spawner::request wanted{};
    wanted.what = what;
    wanted.slot = spawner::max_slots - 1; // Which is nobody's.
    wanted.name = name;
    return ::send(link->socket.get(), &wanted, sizeof wanted, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  };
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(ask(spawner::op::permit, static_cast<std::uint64_t>(from_now(1s).count())));
  while (ask(spawner::op::destroy, 0)) {
  } // It answers each, until there is no room; then it waits for five seconds.
  CHECK(eventually([&] { return all_stand_still(node); }));
  CHECK(std::chrono::steady_clock::now() - begun < 4s);
  CHECK_FALSE(uses_cpu(process));
  link->socket.reset();
  node.serve();
  allow(node);
  auto box = live_sandbox::adopted(node, "test");
  REQUIRE(box);
  REQUIRE((**box).thaw());
  CHECK(eventually([&] { return uses_cpu(process); }));
}

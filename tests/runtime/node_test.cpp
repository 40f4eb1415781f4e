// Deaths and successions: of a spawner, of a server, of everything.
#include "tests/runtime/played_parts.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/live_node.hpp"
#include "tests/support/temp_dir.hpp"

#include "runtime/spawner_client.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

std::string listed(const std::vector<std::string>& all) {
  std::string text;
  for (const auto& each : all)
    text += each + "\n";
  return text;
}

} // namespace

TEST_CASE("a node that was shut down leaves nothing", "[runtime][node]") {
  live_node node;
  live_sandbox box{node};
  auto command = box.start("head -c 100000 /dev/zero; echo up; sleep 1000");
  command.says("up");
  CHECK(node.agents().size() == 1);
  CHECK_FALSE(node.traces().empty());
  node.shut_down();
  CHECK(listed(node.leftovers()).empty());
  CHECK(command.ended().lost);
}

TEST_CASE("when the spawner is killed everything ends, is reported, and the next one finds nothing",
          "[runtime][node]") {
  live_node node;
  live_sandbox one{node}, two{node};
  auto first = one.start("echo up; exec sleep 4712");
  auto second = two.start("echo up; exec sleep 4713");
  first.says("up");
  second.says("up");
  const auto agents = node.agents();
  CHECK(agents.size() == 2);
  CHECK(node.engine().ailments().empty());
  REQUIRE(::kill(node.spawner(), SIGKILL) == 0);
  one.wait_until_ended();
  two.wait_until_ended();
  CHECK(first.ended().lost);
  CHECK(second.ended().lost);
  CHECK(node.engine().ailments().size() == 1);
  CHECK_THROWS(live_sandbox{node});
  CHECK(eventually([&] {
    return std::none_of(agents.begin(), agents.end(), lives) && find_process("sleep 4712") == 0 &&
           find_process("sleep 4713") == 0;
  }));
  one.destroy(); // There is nothing to do, and it says so.
  node.serve();
  CHECK(node.engine().ailments().empty());
  live_sandbox next{node};
  CHECK(next.run("echo works; ls -A /workspace").out == "works\n");
  const auto tree = node.cgroups();
  for (const auto& each : tree.hierarchies()) {
    int sandboxes = 0;
    for (const auto& dir : std::filesystem::directory_iterator{each.directory + "/insula-" +
                                                               node.key() + "/sandboxes"})
      sandboxes += dir.path().filename().string().starts_with("sb-");
    CHECK(sandboxes == 1);
  }
  next.destroy();
  node.shut_down();
  CHECK(listed(node.leftovers()).empty());
}

TEST_CASE("a server that comes after another has what that one left", "[runtime][node]") {
  live_node node;
  live_sandbox old{node};
  const std::string counter =
    "for ((i = 0; i < 20000; ++i)); do echo $i; done; echo end >&2; exit 3";
  {
    auto spec = in_shell(counter);
    spec.label = "counts";
    auto command = old.start(spec);
    command.says("10\n");
    spec = in_shell("exec sleep 4714");
    spec.label = "sleeps";
    auto sleeps = old.start(spec);
    REQUIRE(sleeps.started());
    node.engine().hand_over();
  }
  old.let_go();
  node.drop_server();
  const auto spawner = node.spawner();
  const auto agents = node.agents();
  REQUIRE(agents.size() == 1);
  CHECK(eventually([] { return find_process("sleep 4714") > 0; })); // Its shell becomes that.
  node.serve();
  CHECK(node.spawner() == spawner);
  CHECK(node.engine().survivors() == std::vector<std::string>{"test"});
  CHECK_FALSE(live_sandbox::adopted(node, "another"));
  auto now = live_sandbox::adopted(node, "test");
  REQUIRE(now);
  CHECK(node.engine().survivors().empty());
  CHECK(lives(agents[0]));
  const auto left = (*now->handle()).survivors();
  REQUIRE(left.size() == 2);
  CHECK(left[0].label == "counts");
  CHECK(left[1].label == "sleeps");
  const auto counted = live_command{**now, left[0]}.finish();
  std::string all;
  for (int i = 0; i < 20000; ++i)
    all += std::to_string(i) + "\n";
  CHECK(counted.out == all);
  CHECK(counted.err == "end\n");
  CHECK(counted.exited(3));
  {
    live_command sleeps{**now, left[1]};
    REQUIRE(sleeps.started());
    sleeps.process().signal(SIGKILL);
    const auto how = sleeps.ended();
    CHECK((WIFSIGNALED(how.status) && WTERMSIG(how.status) == SIGKILL));
  }
  CHECK((*now->handle()).survivors().empty());
  CHECK(now->run("echo works").out == "works\n");
  now->destroy();
  CHECK(node.agents().empty());
  node.shut_down();
  CHECK(listed(node.leftovers()).empty());
}

TEST_CASE("a command that ended while nobody served is told with its status and its output",
          "[runtime][node]") {
  live_node node;
  {
    live_sandbox old{node};
    std::vector<live_command> commands;
    for (int i = 0; i < 40; ++i)
      commands.push_back(old.start("echo " + std::to_string(i) + "; exit " + std::to_string(i)));
    node.engine().hand_over(); // Whatever they have come to.
    old.let_go();
  }
  node.drop_server();
  std::this_thread::sleep_for(std::chrono::milliseconds{500});
  node.serve();
  auto now = live_sandbox::adopted(node, "test");
  REQUIRE(now);
  for (const auto& each : (*now->handle()).survivors()) {
    live_command command{**now, each};
    const auto got = command.finish();
    CAPTURE(got.out);
    REQUIRE_FALSE(got.failed);
    CHECK(got.out == std::to_string(WEXITSTATUS(got.how.status)) + "\n");
  }
}

TEST_CASE("what is disowned is ended, in a sandbox and as one", "[runtime][node]") {
  live_node node;
  {
    live_sandbox old{node};
    auto sleeps = old.start("exec sleep 4715");
    REQUIRE(sleeps.started());
    node.engine().hand_over();
    old.let_go();
  }
  node.drop_server();
  node.serve();
  {
    auto now = live_sandbox::adopted(node, "test");
    REQUIRE(now);
    const auto left = (*now->handle()).survivors();
    REQUIRE(left.size() == 1);
    (*now->handle()).disown(left[0]);
    CHECK(eventually([] { return find_process("sleep 4715") == 0; }));
    CHECK(now->run("echo works").out == "works\n");
    now->let_go();
    node.drop_server();
  }
  node.serve();
  const auto gone = std::make_shared<events<int>>();
  node.engine().disown("test", [gone] { gone->tell(1); });
  gone->next();
  CHECK(node.agents().empty());
  node.engine().disown("test", [gone] { gone->tell(1); });
  gone->next();
  live_sandbox next{node};
  CHECK(next.run("echo works").out == "works\n");
}

TEST_CASE("the next server has a spawner of its own where an earlier one has only warm sandboxes",
          "[runtime][node]") {
  live_node node;
  auto warm = node.spec();
  warm.name = "";
  pid_t spawner = 0;
  {
    live_sandbox one{node, warm}, two{node, warm}, used{node};
    spawner = node.spawner();
    node.engine().hand_over();
    one.let_go();
    two.let_go();
    used.let_go();
  }
  node.drop_server();
  node.serve();
  CHECK(node.spawner() == spawner); // It has what is somebody's.
  {
    auto used = live_sandbox::adopted(node, "test");
    REQUIRE(used);
    used->destroy();
  }
  node.drop_server();
  CHECK(node.agents().size() == 2);
  node.serve();
  CHECK(node.spawner() > 0);
  CHECK(node.spawner() != spawner);
  CHECK(eventually([&] { return node.agents().empty(); }));
  CHECK(node.engine().survivors().empty());
  live_sandbox next{node};
  CHECK(next.run("echo works").out == "works\n");
  next.destroy();
  node.shut_down();
  CHECK(listed(node.leftovers()).empty());
}

TEST_CASE("a server that is replaced while it lives loses its sandboxes and is told",
          "[runtime][node]") {
  live_node node;
  live_sandbox old{node};
  auto command = old.start("echo up; exec sleep 1000");
  command.says("up");
  auto socket = connect_to_spawner({node.state(), node.key(), "auto", 1ull << 30});
  REQUIRE(socket);
  old.wait_until_ended();
  CHECK(command.ended().lost);
  CHECK(node.engine().ailments().size() == 1);
  old.let_go();
  socket->socket.reset();
  node.serve();
  live_sandbox next{node};
  CHECK(next.run("echo works").out == "works\n");
}

namespace {

/// Its server has gone, and a sandbox is there. Where the spawner is found.
spawner_options left_with_one_sandbox(live_node& node) {
  live_sandbox box{node};
  node.engine().hand_over();
  box.let_go();
  node.drop_server();
  return {node.state(), node.key(), "auto", 1ull << 30};
}

} // namespace

TEST_CASE("what a server has handed over is held, although it has died of it", "[runtime][node]") {
  live_node node;
  const auto where = left_with_one_sandbox(node);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    auto link = connect_to_spawner(where);
    REQUIRE(link);
    REQUIRE(link->survivors.size() == 1);
    CHECK(link->survivors[0].held.size() == round - 1);
    const plain_end server{std::move(link->socket)};
    spawner::request wanted{};
    wanted.what = spawner::op::destroy; // Of nothing, to get answers, which nobody reads.
    wanted.slot = link->survivors[0].slot + 1;
    for (int i = 0; i < 50; ++i)
      REQUIRE(server.send(as_bytes(wanted)));
    wanted.what = spawner::op::hold;
    wanted.slot = link->survivors[0].slot;
    wanted.name = 1000 + round;
    REQUIRE(server.send(as_bytes(wanted), {STDIN_FILENO}));
  }
  node.serve();
  CHECK(node.engine().survives("test"));
}

TEST_CASE("a spawner that has no descriptors left still takes the next server", "[runtime][node]") {
  live_node node;
  const auto where = left_with_one_sandbox(node);
  auto link = connect_to_spawner(where);
  REQUIRE(link);
  CHECK(link->layers_over_images);
  CHECK(link->gaining_rights);
  CHECK(link->lists_of_packages);
  const plain_end server{std::move(link->socket)};
  const auto pid = node.spawner();
  rlimit before{};
  REQUIRE(::prlimit(pid, RLIMIT_NOFILE, nullptr, &before) == 0);
  const rlimit few{64, before.rlim_max};
  REQUIRE(::prlimit(pid, RLIMIT_NOFILE, &few, nullptr) == 0);
  const auto open = [&] {
    const std::filesystem::directory_iterator all{"/proc/" + std::to_string(pid) + "/fd"};
    return static_cast<rlim_t>(std::distance(begin(all), end(all)));
  };
  spawner::request wanted{};
  wanted.what = spawner::op::hold;
  wanted.slot = link->survivors[0].slot;
  for (wanted.name = 1000; wanted.name < 1000 + few.rlim_cur; ++wanted.name)
    REQUIRE(server.send(as_bytes(wanted), {STDIN_FILENO}));
  CHECK(eventually([&] { return open() == few.rlim_cur; }));
  auto next = connect_to_spawner(where);
  REQUIRE(::prlimit(pid, RLIMIT_NOFILE, &before, nullptr) == 0);
  REQUIRE(next);
  CHECK(next->survivors.size() == 1);
  next->socket.reset();
  node.serve();
  CHECK(node.engine().survives("test"));
}

TEST_CASE("a server that comes while a spawner ends has the next one", "[runtime][node]") {
  live_node node;
  for (int i = 0; i < 3; ++i) {
    live_sandbox box{node};
    CHECK(box.run("echo works").out == "works\n");
    const auto before = node.spawner();
    REQUIRE(::kill(before, SIGTERM) == 0);
    box.wait_until_ended();
    box.let_go();
    node.serve();
    CHECK(node.spawner() != before);
  }
  live_sandbox box{node};
  CHECK(box.run("echo works").out == "works\n");
}

TEST_CASE("SIGTERM ends a spawner with all it has", "[runtime][node]") {
  live_node node;
  live_sandbox box{node};
  auto command = box.start("echo up; exec sleep 1000");
  command.says("up");
  REQUIRE(::kill(node.spawner(), SIGTERM) == 0);
  box.wait_until_ended();
  CHECK(command.ended().lost);
  CHECK(eventually([&] { return node.spawner() == 0; }));
  CHECK(node.engine().ailments().size() == 1);
  node.shut_down();
  CHECK(listed(node.leftovers()).empty());
}

TEST_CASE("two nodes on one machine do not meet", "[runtime][node]") {
  live_node one, other;
  live_sandbox here{one}, there{other};
  CHECK(here.run("echo here > file").exited(0));
  CHECK(there.run("ls -A").out.empty());
  one.shut_down();
  CHECK(listed(one.leftovers()).empty());
  CHECK(there.run("echo works").out == "works\n");
}

TEST_CASE("a node without slots refuses in words", "[runtime][node]") {
  live_node node{{.key = {}, .log_directory = {}, .first_slot = 0, .slots = 2}};
  live_sandbox one{node}, two{node};
  const auto told = std::make_shared<events<error>>();
  node.engine().create(node.spec(),
                       {[](auto) {}, [told](error why) { told->tell(std::move(why)); }, [] {}});
  CHECK(told->next().code == errc::capacity_exceeded);
  one.destroy();
  live_sandbox three{node};
  CHECK(three.run("echo works").out == "works\n");
}

TEST_CASE("a state directory that cannot be used is named", "[runtime][node]") {
  const auto none = connect_to_spawner({"/nonexistent/state", "nonexistent", "auto", 0});
  CHECK_FALSE(none);
  const cgroup_tree tree = cgroup_tree::of_this_process("nonexistent");
  CHECK(tree.sweep());
}

TEST_CASE("a state directory whose file system maps no ids stops the start, not every sandbox",
          "[runtime][node]") {
  const temp_dir place;
  const auto state = place.path().string();
  REQUIRE(::mount("insula-test", state.c_str(), "ramfs", 0, nullptr) == 0); // As tmpfs before 6.3.
  const auto none = connect_to_spawner({state, "unmappable", "tmpfs", 0});
  CHECK(::umount2(state.c_str(), MNT_DETACH) == 0);
  CHECK_FALSE(none);
  const cgroup_tree tree = cgroup_tree::of_this_process("unmappable");
  CHECK(tree.sweep());
}

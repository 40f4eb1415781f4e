// A sandbox that was made before anybody wanted it becomes somebody's.
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/live_node.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// What its new owner hears.
std::shared_ptr<events<std::string>> claim(sandbox& it, sandbox_identity who) {
  auto heard = std::make_shared<events<std::string>>();
  it.claim(std::move(who), {[heard](const std::shared_ptr<sandbox>&) { heard->tell("ready"); },
                            [heard](const error& why) { heard->tell("failed " + why.message); },
                            [heard] { heard->tell("ended"); }});
  return heard;
}

/// The first line of a file in some sandbox's cgroups, wherever this machine has it.
std::string in_cgroup(const live_node& node, const std::string& file) {
  const auto tree = node.cgroups();
  std::error_code gone;
  for (const auto& each : tree.hierarchies())
    for (const auto& dir : std::filesystem::directory_iterator{
           each.directory + "/insula-" + node.key() + "/sandboxes", gone})
      if (std::ifstream in{dir.path() / file};
          in && dir.path().filename().string().starts_with("sb-")) {
        std::string line;
        std::getline(in, line);
        return line;
      }
  return {};
}

std::string either(const live_node& node, const std::string& v2, const std::string& v1) {
  const auto found = in_cgroup(node, v2);
  return found.empty() ? in_cgroup(node, v1) : found;
}

/// Root in a container may lack CAP_SYS_RESOURCE.
bool may_raise_limits() {
  std::ifstream status{"/proc/self/status"};
  for (std::string word; status >> word;)
    if (word == "CapEff:")
      return status >> word && (std::stoull(word, nullptr, 16) >> 24 & 1) != 0;
  return false;
}

} // namespace

TEST_CASE("what is claimed has its new name at once, and is like any other", "[runtime][claim]") {
  live_node node;
  live_sandbox box{node};
  const auto heard = claim(*box, {"somebody", node.spec().limits});
  CHECK(heard->next() == "ready");
  CHECK(box.run("hostname; cat /proc/sys/kernel/hostname; ls -A /workspace").out ==
        "somebody\nsomebody\n");
  live_sandbox next{node}; // The spawner has its own name back.
  CHECK(next.run("hostname").out != "somebody\n");
  REQUIRE(node.agents().size() == 2);
  for (const auto agent : node.agents())
    ::kill(agent, SIGKILL);
  CHECK(heard->next() == "ended"); // It is its new owner who hears of it,
  next.wait_until_ended();         // as that of one that was not claimed does.
}

TEST_CASE("what has been claimed, or has been used, is claimed by nobody", "[runtime][claim]") {
  live_node node;
  {
    live_sandbox box{node};
    CHECK(claim(*box, {"somebody", node.spec().limits})->next() == "ready");
    CHECK(claim(*box, {"another", node.spec().limits})->next().starts_with("failed"));
  }
  live_sandbox box{node};
  auto command = box.start("echo up; exec sleep 1000");
  command.says("up");
  CHECK(claim(*box, {"another", node.spec().limits})->next().starts_with("failed"));
}

TEST_CASE("what is claimed has its new limits, higher and lower ones", "[runtime][claim]") {
  live_node node;
  auto before = node.spec().limits;
  before.memory_bytes = 256u << 20;
  before.processes = 64;
  before.cpu_percent = 100;
  before.disk_bytes = 64u << 20;
  before.shm_bytes = 4u << 20;
  before.open_files = 1024;
  const bool higher = GENERATE(true, false);
  CAPTURE(higher);
  auto after = before;
  after.memory_bytes = higher ? 512u << 20 : 128u << 20;
  after.processes = higher ? 128 : 32;
  after.cpu_percent = higher ? 150 : 50;
  after.disk_bytes = higher ? 128u << 20 : 32u << 20;
  after.shm_bytes = higher ? 8u << 20 : 2u << 20;
  after.open_files = !higher ? 512 : may_raise_limits() ? 2048 : before.open_files;
  live_sandbox box{node, before};
  const auto heard = claim(*box, {"somebody", after});
  REQUIRE(heard->next() == "ready");
  CHECK(either(node, "memory.max", "memory.limit_in_bytes") ==
        std::to_string(after.memory_bytes + reserved_memory(after.memory_bytes)));
  CHECK(in_cgroup(node, "commands/pids.max") == std::to_string(after.processes));
  CHECK(in_cgroup(node, "pids.max") == std::to_string(after.processes + reserved_processes));
  CHECK(either(node, "commands/memory.max", "commands/memory.limit_in_bytes") ==
        std::to_string(after.memory_bytes));
  // System V's segments have what /dev/shm leaves of half of the memory.
  CHECK(box.run("cat /proc/sys/kernel/shmmax").out ==
        std::to_string(after.memory_bytes / 2 - after.shm_bytes) + "\n");
  CHECK(box.run("df --output=itotal /dev/shm | tail -n 1 | tr -d ' '").out ==
        std::to_string(after.memory_bytes >> 14) + "\n");
  for (const std::string part : {"", "commands/"})
    CHECK(either(node, part + "cpu.max", part + "cpu.cfs_quota_us")
            .starts_with(higher ? "150000" : "50000"));
  CHECK(box.run("ulimit -n").out == std::to_string(after.open_files) + "\n");
  CHECK(box.run("df -B1 --output=size /dev/shm | tail -n 1 | tr -d ' '").out ==
        std::to_string(after.shm_bytes) + "\n");
  // Between the lowest and the highest, with room for what the file system needs itself.
  const auto written =
    box.run("head -c 80000000 /dev/zero > /workspace/file && sync -f /workspace");
  CHECK(written.exited(0) == higher);
}

TEST_CASE("what does not answer is not claimed but removed", "[runtime][claim]") {
  live_node node;
  live_sandbox box{node};
  REQUIRE(node.agents().size() == 1);
  const auto agent = node.agents()[0];
  SECTION("it hangs") {
    ::kill(agent, SIGSTOP);
    const auto heard = claim(*box, {"somebody", node.spec().limits});
    CHECK(heard->next() == "failed the warm sandbox did not answer in time");
  }
  SECTION("it has just been killed") {
    ::kill(agent, SIGKILL);
    const auto heard = claim(*box, {"somebody", node.spec().limits});
    CHECK(heard->next().starts_with("failed "));
  }
  SECTION("it has ended, and that is known") {
    ::kill(agent, SIGKILL);
    box.wait_until_ended();
    const auto heard = claim(*box, {"somebody", node.spec().limits});
    CHECK(heard->next() == "failed the sandbox has ended");
  }
  CHECK(eventually([&] { return node.agents().empty(); }));
  CHECK(eventually([&] { return in_cgroup(node, "pids.max").empty(); }));
}

TEST_CASE("an agent answers, and a dead one never does", "[runtime][claim]") {
  live_node node;
  live_sandbox box{node};
  const auto heard = std::make_shared<events<std::string>>();
  (*box).ping([heard] { heard->tell("pong"); });
  CHECK(heard->next() == "pong");
  ::kill(node.agents().at(0), SIGKILL);
  box.wait_until_ended();
  (*box).ping([heard] { heard->tell("pong"); });
  box.destroy();
  CHECK(heard.use_count() == 1); // Nobody keeps the question.
}

TEST_CASE("claims overtake what is being made", "[runtime][claim]") {
  live_node node;
  live_sandbox box{node};
  const auto order = std::make_shared<events<std::string>>();
  constexpr int crowd = 20;
  std::vector<std::shared_ptr<sandbox>> made;
  std::mutex guard;
  for (int i = 0; i < crowd; ++i)
    node.engine().create(node.spec(),
                         {[&, order](std::shared_ptr<sandbox> it) {
                            const std::lock_guard hold{guard};
                            made.push_back(std::move(it));
                            order->tell("made");
                          },
                          [order](const error& why) { order->tell(why.message); }, [] {}});
  (*box).claim({"somebody", node.spec().limits},
               {[order](const std::shared_ptr<sandbox>&) { order->tell("claimed"); },
                [order](const error& why) { order->tell(why.message); }, [] {}});
  std::vector<std::string> seen;
  for (int i = 0; i <= crowd; ++i)
    seen.push_back(order->next());
  const auto at = std::find(seen.begin(), seen.end(), "claimed") - seen.begin();
  CHECK(at < crowd / 2);
  CHECK(std::count(seen.begin(), seen.end(), "made") == crowd);
  const auto gone = std::make_shared<events<std::string>>();
  for (const auto& each : made)
    each->destroy([gone] { gone->tell("gone"); });
  for (int i = 0; i < crowd; ++i)
    CHECK(gone->next() == "gone");
}

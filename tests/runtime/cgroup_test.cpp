// The rules on texts and on a kernel that is played (the linker leads mkdir, rmdir and kill here);
// then the real one.
#include "runtime/cgroup.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace fs = std::filesystem;

extern "C" {
int __real_mkdir(const char* path, mode_t mode);
int __real_rmdir(const char* path);
int __real_kill(pid_t pid, int number);
}

namespace {

/// Directories below `root` behave as cgroups do: they are born with files, and are removed with
/// them.
struct played_kernel {
  explicit played_kernel(std::map<std::string, std::vector<const char*>> per_hierarchy)
      : files(std::move(per_hierarchy)) {
    current = this;
    for (const auto& [name, unused] : files) {
      fs::create_directories(dir / name);
      fill((dir / name).string());
    }
  }
  ~played_kernel() { current = nullptr; }

  bool owns(const std::string& path) const { return path.starts_with(dir.path().string() + "/"); }

  void fill(const std::string& path) const {
    for (const auto& [name, list] : files)
      if (path.starts_with((dir / name).string()))
        for (const char* file : list)
          if (file != refused || path.find("/sb-") == std::string::npos)
            std::ofstream{path + "/" + file};
  }

  std::string read(const std::string& path) const {
    std::ifstream file{dir / path};
    std::string text;
    std::getline(file, text);
    return text;
  }
  void put(const std::string& path, const std::string& text) const {
    std::ofstream{dir / path} << text;
  }
  bool exists(const std::string& path) const { return fs::exists(dir / path); }
  std::string at(const std::string& name) const { return (dir / name).string(); }

  static inline played_kernel* current = nullptr;
  temp_dir dir;
  std::map<std::string, std::vector<const char*>> files;
  const char* refused = nullptr; ///< A sandbox's cgroup has no such file.
  std::vector<pid_t> killed;
};

constexpr cgroup_limits some_limits{256u << 20, 150, 100};

std::map<std::string, std::vector<const char*>> v1_files() {
  return {{"memory",
           {"cgroup.procs", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes",
            "memory.kmem.tcp.limit_in_bytes", "memory.oom_control"}},
          {"pids", {"cgroup.procs", "pids.max"}},
          {"cpu", {"cgroup.procs", "cpu.cfs_quota_us"}},
          {"freezer", {"cgroup.procs", "freezer.state"}}};
}

std::vector<cgroup_hierarchy> v1_hierarchies(const played_kernel& in) {
  return {{"memory", in.at("memory")},
          {"pids", in.at("pids")},
          {"cpu", in.at("cpu")},
          {"freezer", in.at("freezer")}};
}

std::map<std::string, std::vector<const char*>> v2_files() {
  return {{"unified",
           {"cgroup.procs", "cgroup.subtree_control", "memory.max", "memory.swap.max",
            "memory.events", "pids.max", "cpu.max", "cgroup.freeze", "cgroup.events"}}};
}

std::string described(const std::vector<cgroup_hierarchy>& found) {
  std::string text;
  for (const auto& each : found)
    text += (each.controller.empty() ? "unified" : each.controller) + "=" + each.directory + " ";
  return text;
}

} // namespace

extern "C" {

int __wrap_mkdir(const char* path, mode_t mode) {
  const int made = __real_mkdir(path, mode);
  if (const auto* kernel = played_kernel::current; made == 0 && kernel && kernel->owns(path))
    kernel->fill(path);
  return made;
}

int __wrap_rmdir(const char* path) {
  if (const auto* kernel = played_kernel::current;
      kernel && kernel->owns(path) && fs::exists(path)) {
    for (const auto& each : fs::directory_iterator{path})
      if (each.is_directory())
        return errno = EBUSY, -1;
    for (const auto& each : fs::directory_iterator{path})
      fs::remove(each);
  }
  return __real_rmdir(path);
}

int __wrap_kill(pid_t pid, int number) {
  if (played_kernel::current == nullptr)
    return __real_kill(pid, number);
  played_kernel::current->killed.push_back(pid);
  return 0;
}

} // extern "C"

TEST_CASE("cgroup v1 is found by its controllers, alone and together", "[runtime][cgroup]") {
  const auto found = find_cgroup_hierarchies(
    "sysfs /sys sysfs rw 0 0\n"
    "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,relatime,cpu,cpuacct 0 0\n"
    "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n"
    "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n"
    "cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0\n"
    "cgroup /sys/fs/cgroup/pids cgroup rw,relatime,pids 0 0\n",
    "6:freezer:/\n5:cpuset:/\n4:memory:/a/b\n3:pids:/user.slice\n2:cpu,cpuacct:/c\n");
  CHECK(described(found) == "cpu=/sys/fs/cgroup/cpu,cpuacct/c memory=/sys/fs/cgroup/memory/a/b "
                            "freezer=/sys/fs/cgroup/freezer pids=/sys/fs/cgroup/pids/user.slice ");
  CHECK(cgroup_tree{found, "k"}.mode() == "v1");
}

TEST_CASE("cgroup v2 is one hierarchy", "[runtime][cgroup]") {
  const auto found = find_cgroup_hierarchies(
    "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate,memory_recursiveprot 0 0\n",
    "0::/system.slice/insula.service\n");
  CHECK(described(found) == "unified=/sys/fs/cgroup/system.slice/insula.service ");
  CHECK(cgroup_tree{found, "k"}.mode() == "v2");
}

TEST_CASE("a hybrid machine's limits are in v1, and its freezer is not needed",
          "[runtime][cgroup]") {
  const auto found =
    find_cgroup_hierarchies("cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
                            "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
                            "cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n"
                            "cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n"
                            "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n",
                            "9:name=systemd:/\n4:memory:/\n3:freezer:/\n2:pids:/\n1:cpu:/\n0::/\n");
  CHECK(described(found) == "unified=/sys/fs/cgroup/unified memory=/sys/fs/cgroup/memory "
                            "pids=/sys/fs/cgroup/pids cpu=/sys/fs/cgroup/cpu ");
  CHECK(cgroup_tree{found, "k"}.mode() == "hybrid");
}

TEST_CASE("what Java looks for is shown, unless it is in a hierarchy of a limit",
          "[runtime][cgroup]") {
  const std::string one_by_one = "cgroup /c/cpu cgroup rw,cpu 0 0\n"
                                 "cgroup /c/cpuacct cgroup rw,cpuacct 0 0\n"
                                 "cgroup /c/cpuset cgroup rw,cpuset 0 0\n",
                    both = "cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n";
  CHECK(described(find_shown_hierarchies(one_by_one, "3:cpuset:/\n2:cpuacct:/a\n1:cpu:/a\n")) ==
        "cpuacct=/c/cpuacct/a cpuset=/c/cpuset ");
  CHECK(find_shown_hierarchies(both, "1:cpu,cpuacct:/a\n").empty());
  CHECK(find_shown_hierarchies("cgroup2 /c cgroup2 rw 0 0\n", "0::/a\n").empty());
}

TEST_CASE("the list of controllers tells nothing of the machine's groups", "[runtime][cgroup]") {
  CHECK(without_group_counts("#subsys_name\thierarchy\tnum_cgroups\tenabled\n"
                             "cpuset\t3\t17\t1\nhugetlb\t0\t4\t0\nnonsense\n") ==
        "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t1\t1\nhugetlb\t0\t1\t0\n");
  CHECK(without_group_counts("").empty());
}

TEST_CASE("texts that say nothing of cgroups give no hierarchy", "[runtime][cgroup]") {
  CHECK(find_cgroup_hierarchies("", "").empty());
  CHECK(find_cgroup_hierarchies("nonsense\n\ncgroup\n", "1\n::\nx:y\n").empty());
  // Mounted, and this process is in none of them.
  CHECK(find_cgroup_hierarchies("cgroup /c/pids cgroup rw,pids 0 0\n", "1:memory:/\n").empty());
  // A controller's name is a whole word.
  CHECK(
    find_cgroup_hierarchies("cgroup /c/x cgroup rw,cpuacct,cpuset 0 0\n", "1:cpuacct,cpuset:/\n")
      .empty());
}

TEST_CASE("a hierarchy that is mounted twice is used once", "[runtime][cgroup]") {
  const auto found =
    find_cgroup_hierarchies("cgroup2 /a cgroup2 rw 0 0\ncgroup2 /b cgroup2 rw 0 0\n", "0::/x\n");
  CHECK(described(found) == "unified=/a/x ");
}

TEST_CASE("limits are written into the files of v1", "[runtime][cgroup]") {
  const played_kernel kernel{v1_files()};
  const cgroup_tree tree{v1_hierarchies(kernel), "k"};
  REQUIRE(tree.prepare());
  CHECK(kernel.read("memory/insula-k/host/cgroup.procs") == "0");
  CHECK(kernel.read("freezer/insula-k/host/cgroup.procs") == "0");
  REQUIRE(tree.create(3, some_limits));
  CHECK(kernel.read("memory/insula-k/sandboxes/sb-3/memory.limit_in_bytes") == "285212672");
  CHECK(kernel.read("memory/insula-k/sandboxes/sb-3/memory.memsw.limit_in_bytes") == "285212672");
  CHECK(kernel.read("memory/insula-k/sandboxes/sb-3/memory.kmem.tcp.limit_in_bytes") ==
        "285212672");
  CHECK(kernel.read("pids/insula-k/sandboxes/sb-3/pids.max") == "164");
  CHECK(kernel.read("cpu/insula-k/sandboxes/sb-3/cpu.cfs_quota_us") == "150000");
  const std::string commands = "/insula-k/sandboxes/sb-3/commands/";
  for (const char* file :
       {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"})
    CHECK(kernel.read("memory" + commands + file) == "268435456");
  CHECK(kernel.read("pids" + commands + "pids.max") == "100");
  CHECK(kernel.read("cpu" + commands + "cpu.cfs_quota_us") == "150000");
  CHECK_FALSE(kernel.exists("freezer" + commands));
  const auto procs = tree.open_procs(3);
  REQUIRE(procs);
  CHECK(procs->size() == 4);
  REQUIRE(tree.open_procs(3, cgroup_part::reserve));
  CHECK(tree.open_procs(3, cgroup_part::reserve)->size() == 4);
  const auto killed = [&](const std::string& group, int count) {
    kernel.put("memory/insula-k/sandboxes/sb-3" + group + "/memory.oom_control",
               "oom_kill_disable 0\nunder_oom 0\noom_kill " + std::to_string(count) + "\n");
  };
  killed("", 2);
  killed("/commands", 5);
  const auto counts = tree.open_kill_counts(3);
  CHECK(killed_processes(counts) == 7u);
  killed("/commands", 6);
  CHECK(killed_processes(counts) == 8u); // Of files that stay open.
  CHECK(killed_processes({}) == std::nullopt);
  // What is shown is what binds.
  const auto shown = tree.shown(3);
  REQUIRE(shown.size() == 3);
  for (const auto& each : shown)
    CHECK(each.directory.ends_with(each.name + "/insula-k/sandboxes/sb-3/commands"));
  CHECK(tree.remove(3));
  for (const char* each : {"memory", "pids", "cpu", "freezer"})
    CHECK_FALSE(kernel.exists(std::string{each} + "/insula-k/sandboxes/sb-3"));
  CHECK(tree.remove(3));
  CHECK_FALSE(killed_processes(tree.open_kill_counts(3)));
}

TEST_CASE("a kernel that charges no sockets of version 1 apart has no limit for them",
          "[runtime][cgroup]") {
  auto files = v1_files();
  std::erase_if(files["memory"],
                [](std::string_view each) { return each == "memory.kmem.tcp.limit_in_bytes"; });
  const played_kernel kernel{files};
  const cgroup_tree tree{v1_hierarchies(kernel), "k"};
  REQUIRE(tree.prepare());
  REQUIRE(tree.create(3, some_limits));
  REQUIRE(tree.limit(3, {1u << 30, 50, 7}));
  CHECK_FALSE(kernel.exists("memory/insula-k/sandboxes/sb-3/memory.kmem.tcp.limit_in_bytes"));
}

TEST_CASE("limits are written into the files of v2", "[runtime][cgroup]") {
  const played_kernel kernel{v2_files()};
  kernel.put("unified/cgroup.procs", std::to_string(::getppid()) + "\n");
  const cgroup_tree tree{{{"", kernel.at("unified")}}, "k"};
  REQUIRE(tree.prepare());
  // Ourselves and the one who started us are in the leaf, so that controllers can be handed down.
  CHECK(kernel.read("unified/insula-k/host/cgroup.procs") == std::to_string(::getppid()));
  CHECK(kernel.read("unified/cgroup.subtree_control").starts_with("+"));
  CHECK(kernel.read("unified/insula-k/cgroup.subtree_control").starts_with("+"));
  REQUIRE(tree.create(3, some_limits));
  CHECK(kernel.read("unified/insula-k/sandboxes/sb-3/memory.max") == "285212672");
  CHECK(kernel.read("unified/insula-k/sandboxes/sb-3/memory.swap.max") == "0");
  CHECK(kernel.read("unified/insula-k/sandboxes/sb-3/pids.max") == "164");
  CHECK(kernel.read("unified/insula-k/sandboxes/sb-3/cpu.max") == "150000 100000");
  CHECK(kernel.read("unified/insula-k/sandboxes/sb-3/cgroup.subtree_control").starts_with("+"));
  const std::string commands = "unified/insula-k/sandboxes/sb-3/commands/";
  CHECK(kernel.read(commands + "memory.max") == "268435456");
  CHECK(kernel.read(commands + "memory.swap.max") == "0");
  CHECK(kernel.read(commands + "pids.max") == "100");
  CHECK(kernel.read(commands + "cpu.max") == "150000 100000");
  const std::string reserve = "unified/insula-k/sandboxes/sb-3/reserve/";
  for (const char* file : {"memory.max", "pids.max", "cpu.max"})
    CHECK(kernel.read(reserve + file).empty());
  for (const auto& [part, at] :
       {std::pair{cgroup_part::commands, commands}, std::pair{cgroup_part::reserve, reserve}}) {
    const auto procs = tree.open_procs(3, part);
    REQUIRE(procs);
    REQUIRE(procs->size() == 1);
    CHECK(::write(procs->front().get(), "0", 1) == 1);
    CHECK(kernel.read(at + "cgroup.procs") == "0");
  }
  REQUIRE(tree.shown(3).size() == 1);
  CHECK(tree.shown(3).front().directory.ends_with("unified/insula-k/sandboxes/sb-3/commands"));
  kernel.put("unified/insula-k/sandboxes/sb-3/memory.events",
             "low 0\nhigh 0\nmax 12\noom 1\noom_kill 2\n");
  CHECK(killed_processes(tree.open_kill_counts(3)) == 2u);
  CHECK(tree.remove(3));
  CHECK_FALSE(kernel.exists("unified/insula-k/sandboxes/sb-3"));
}

TEST_CASE("a slot's limits change, and those that are none any more are lifted",
          "[runtime][cgroup]") {
  const played_kernel v1{v1_files()};
  const cgroup_tree old{v1_hierarchies(v1), "k"};
  REQUIRE(old.prepare());
  REQUIRE(old.create(3, some_limits));
  const auto emptied = [](const played_kernel& kernel, const std::string& group) {
    for (const auto& each : fs::directory_iterator{kernel.dir / group})
      if (each.is_regular_file())
        std::ofstream{each.path()}; // A real one is written anew each time.
  };
  const auto empty_v1 = [&] {
    for (const char* each : {"memory", "pids", "cpu"})
      for (const char* part : {"", "/commands"})
        emptied(v1, std::string{each} + "/insula-k/sandboxes/sb-3" + part);
  };
  empty_v1();
  REQUIRE(old.limit(3, {1u << 30, 50, 7}));
  CHECK(v1.read("memory/insula-k/sandboxes/sb-3/memory.limit_in_bytes") == "1107296256");
  CHECK(v1.read("memory/insula-k/sandboxes/sb-3/memory.memsw.limit_in_bytes") == "1107296256");
  CHECK(v1.read("memory/insula-k/sandboxes/sb-3/memory.kmem.tcp.limit_in_bytes") == "1107296256");
  CHECK(v1.read("pids/insula-k/sandboxes/sb-3/pids.max") == "71");
  CHECK(v1.read("pids/insula-k/sandboxes/sb-3/commands/pids.max") == "7");
  CHECK(v1.read("memory/insula-k/sandboxes/sb-3/commands/memory.limit_in_bytes") == "1073741824");
  CHECK(v1.read("cpu/insula-k/sandboxes/sb-3/cpu.cfs_quota_us") == "50000");
  empty_v1();
  REQUIRE(old.limit(3, {}));
  CHECK(v1.read("memory/insula-k/sandboxes/sb-3/memory.limit_in_bytes") == "-1");
  CHECK(v1.read("memory/insula-k/sandboxes/sb-3/memory.kmem.tcp.limit_in_bytes") == "-1");
  CHECK(v1.read("pids/insula-k/sandboxes/sb-3/pids.max") == "max");
  CHECK(v1.read("pids/insula-k/sandboxes/sb-3/commands/pids.max") == "max");
  CHECK(v1.read("memory/insula-k/sandboxes/sb-3/commands/memory.limit_in_bytes") == "-1");
  CHECK(v1.read("cpu/insula-k/sandboxes/sb-3/cpu.cfs_quota_us") == "-1");

  const played_kernel v2{v2_files()};
  const cgroup_tree unified{{{"", v2.at("unified")}}, "k"};
  REQUIRE(unified.prepare());
  REQUIRE(unified.create(3, some_limits));
  emptied(v2, "unified/insula-k/sandboxes/sb-3");
  REQUIRE(unified.limit(3, {1u << 30, 50, 7}));
  CHECK(v2.read("unified/insula-k/sandboxes/sb-3/memory.max") == "1107296256");
  CHECK(v2.read("unified/insula-k/sandboxes/sb-3/cpu.max") == "50000 100000");
  CHECK(v2.read("unified/insula-k/sandboxes/sb-3/pids.max") == "71");
  emptied(v2, "unified/insula-k/sandboxes/sb-3");
  REQUIRE(unified.limit(3, {}));
  CHECK(v2.read("unified/insula-k/sandboxes/sb-3/memory.max") == "max");
  CHECK(v2.read("unified/insula-k/sandboxes/sb-3/cpu.max") == "max 100000");
  CHECK(v2.read("unified/insula-k/sandboxes/sb-3/pids.max") == "max");
  CHECK(unified.limit(4, some_limits).reason().message.find("sb-4") != std::string::npos);
}

TEST_CASE("what is kept of the memory is little, and never most of it", "[runtime][cgroup]") {
  CHECK(reserved_memory(0) == 0);
  CHECK(reserved_memory(8u << 20) == 2u << 20);
  CHECK(reserved_memory(32u << 20) == 4u << 20);
  CHECK(reserved_memory(256u << 20) == 16u << 20);
  CHECK(reserved_memory(64ull << 30) == 32u << 20);
}

TEST_CASE("a program that serves a bucket has one group, with its limits", "[runtime][cgroup]") {
  const played_kernel kernel{v1_files()};
  const cgroup_tree tree{v1_hierarchies(kernel), "k"};
  REQUIRE(tree.prepare());
  REQUIRE(tree.create(group_of_mount(3), some_limits));
  CHECK(kernel.read("memory/insula-k/mount-3/memory.limit_in_bytes") == "268435456");
  CHECK(kernel.read("pids/insula-k/mount-3/pids.max") == "100");
  CHECK_FALSE(kernel.exists("pids/insula-k/mount-3/commands"));
  CHECK(tree.open_procs(group_of_mount(3)));
  CHECK(tree.remove(group_of_mount(3)));
}

TEST_CASE("leaving gives the place back as it was", "[runtime][cgroup]") {
  auto files = v2_files();
  files["unified"].push_back("cgroup.type"); // Which only the root of all groups does not have.
  const played_kernel kernel{files};
  const cgroup_tree tree{{{"", kernel.at("unified")}}, "k"};
  REQUIRE(tree.prepare());
  kernel.put("unified/insula-k/host/cgroup.procs", std::to_string(::getpid()) + "\n");
  tree.leave();
  CHECK(kernel.killed.empty());
  CHECK(kernel.read("unified/cgroup.procs") == std::to_string(::getpid()));
  CHECK(kernel.read("unified/cgroup.subtree_control").starts_with("-"));
  CHECK_FALSE(kernel.exists("unified/insula-k"));
}

TEST_CASE("the root of all groups hands down as before when a node leaves", "[runtime][cgroup]") {
  const played_kernel kernel{v2_files()};
  const cgroup_tree tree{{{"", kernel.at("unified")}}, "k"};
  REQUIRE(tree.prepare());
  kernel.put("unified/insula-k/host/cgroup.procs", std::to_string(::getpid()) + "\n");
  tree.leave();
  CHECK(kernel.read("unified/cgroup.procs") == std::to_string(::getpid()));
  CHECK(kernel.read("unified/cgroup.subtree_control").starts_with("+"));
  CHECK_FALSE(kernel.exists("unified/insula-k"));
}

TEST_CASE("a place that hands no controllers down is named, and nothing of the node stays there",
          "[runtime][cgroup]") {
  const played_kernel kernel{{{"unified", {"cgroup.procs", "cgroup.type"}}}};
  kernel.put("unified/cgroup.procs", std::to_string(::getppid()) + "\n");
  const cgroup_tree tree{{{"", kernel.at("unified")}}, "k"};
  const auto prepared = tree.prepare();
  REQUIRE_FALSE(prepared);
  CHECK(prepared.reason().code == errc::launch_failed);
  CHECK(prepared.reason().message.find(kernel.at("unified") + " cannot hand") != std::string::npos);
  CHECK(prepared.reason().message.find("Delegate=yes") != std::string::npos);
  CHECK(kernel.read("unified/cgroup.procs") == std::to_string(::getppid()));
  CHECK_FALSE(kernel.exists("unified/insula-k"));
}

TEST_CASE("a limit of zero writes nothing", "[runtime][cgroup]") {
  const played_kernel kernel{v2_files()};
  const cgroup_tree tree{{{"", kernel.at("unified")}}, "k"};
  REQUIRE(tree.prepare());
  REQUIRE(tree.create(1, {}));
  for (const char* file : {"memory.max", "memory.swap.max", "pids.max", "cpu.max"})
    CHECK(kernel.read(std::string{"unified/insula-k/sandboxes/sb-1/"} + file).empty());
}

TEST_CASE("a limit that cannot be written leaves no cgroup, and the file is named",
          "[runtime][cgroup]") {
  played_kernel kernel{v1_files()};
  kernel.refused = "cpu.cfs_quota_us";
  const cgroup_tree tree{v1_hierarchies(kernel), "k"};
  REQUIRE(tree.prepare());
  const auto made = tree.create(3, some_limits);
  REQUIRE_FALSE(made);
  CHECK(made.reason().code == errc::launch_failed);
  CHECK(made.reason().message.find("sb-3/cpu.cfs_quota_us") != std::string::npos);
  for (const char* each : {"memory", "pids", "cpu", "freezer"})
    CHECK_FALSE(kernel.exists(std::string{each} + "/insula-k/sandboxes/sb-3"));
}

TEST_CASE("a limit that no hierarchy can hold is refused instead of forgotten",
          "[runtime][cgroup]") {
  const played_kernel kernel{v1_files()};
  const cgroup_tree without_pids{{{"memory", kernel.at("memory")}, {"cpu", kernel.at("cpu")}}, "k"};
  REQUIRE(without_pids.prepare());
  const auto made = without_pids.create(3, some_limits);
  REQUIRE_FALSE(made);
  CHECK(made.reason().code == errc::launch_failed);
  CHECK(made.reason().message.find("pids") != std::string::npos);
  CHECK_FALSE(kernel.exists("memory/insula-k/sandboxes/sb-3"));
  CHECK(without_pids.create(3, {1u << 30, 100, 0}));

  const cgroup_tree nothing{{}, "k"};
  CHECK_FALSE(nothing.create(1, {1u << 30, 0, 0}));
  CHECK(nothing.create(1, {}));
}

TEST_CASE("a server that was moved into the leaf still finds its sandboxes", "[runtime][cgroup]") {
  // On v2 the spawner moves the server, which then reads its cgroup: the leaf.
  const played_kernel kernel{v2_files()};
  const cgroup_tree spawners{{{"", kernel.at("unified")}}, "k"};
  REQUIRE(spawners.prepare());
  REQUIRE(spawners.create(3, some_limits));
  kernel.put("unified/insula-k/sandboxes/sb-3/memory.events", "oom_kill 1\n");
  const cgroup_tree servers{{{"", kernel.at("unified") + "/insula-k/host"}}, "k"};
  CHECK(killed_processes(servers.open_kill_counts(3)) == 1u);
  // That leaf of another node is a place like any other.
  const cgroup_tree other{{{"", kernel.at("unified") + "/insula-k/host"}}, "other"};
  REQUIRE(other.prepare());
  CHECK(kernel.exists("unified/insula-k/host/insula-other/host"));
}

TEST_CASE("what a slot uses is read where its machine's cgroups have it", "[runtime][cgroup]") {
  const auto told = [](const cgroup_usage& now) {
    const auto text = [](const auto& number) { return number ? std::to_string(*number) : "?"; };
    return text(now.memory_bytes) + " " + text(now.cpu_us) + " " + text(now.processes);
  };
  const std::string slot = "/insula-k/sandboxes/sb-3/";
  {
    const played_kernel kernel{v2_files()};
    const cgroup_tree tree{{{"", kernel.at("unified")}}, "k"};
    fs::create_directories(kernel.at("unified") + slot);
    CHECK(told(tree.usage(3)) == "? ? ?");
    kernel.put("unified" + slot + "memory.current", "4096\n");
    kernel.put("unified" + slot + "cpu.stat", "usage_usec 70\nuser_usec 50\nsystem_usec 20\n");
    kernel.put("unified" + slot + "pids.current", "2\n");
    CHECK(told(tree.usage(3)) == "4096 70 2");
  }
  const played_kernel kernel{[] {
    auto files = v1_files();
    files["unified"] = {"cgroup.procs"};
    return files;
  }()};
  const cgroup_tree v1{v1_hierarchies(kernel), "k"};
  for (const auto* name : {"memory", "pids", "cpu", "unified"})
    fs::create_directories(kernel.at(name) + slot);
  kernel.put("memory" + slot + "memory.usage_in_bytes", "8192\n");
  kernel.put("pids" + slot + "pids.current", "1\n");
  CHECK(told(v1.usage(3)) == "8192 ? 1"); // cpuacct is mounted elsewhere.
  kernel.put("cpu" + slot + "cpuacct.usage", "5000999\n");
  CHECK(told(v1.usage(3)) == "8192 5000 1");

  auto both = v1_hierarchies(kernel);
  both.back() = {"", kernel.at("unified")};
  const cgroup_tree hybrid{both, "k"};
  CHECK(hybrid.mode() == "hybrid");
  kernel.put("unified" + slot + "cpu.stat", "usage_usec 71\n");
  CHECK(told(hybrid.usage(3)) == "8192 71 1");
}

TEST_CASE("a slot is frozen and thawed in the words of its machine's cgroups",
          "[runtime][cgroup]") {
  const auto freeze_in = [](const cgroup_tree& tree) {
    REQUIRE(tree.prepare());
    CHECK(tree.can_freeze());
    REQUIRE(tree.create(3, {}));
    auto file = tree.open_freezer(3);
    REQUIRE(file);
    CHECK_FALSE(tree.is_frozen(3));
    CHECK(tree.freeze(file.get()));
    return file;
  };
  {
    const played_kernel kernel{v2_files()};
    const cgroup_tree tree{{{"", kernel.at("unified")}}, "k"};
    const auto file = freeze_in(tree);
    CHECK(kernel.read("unified/insula-k/sandboxes/sb-3/cgroup.freeze") == "1");
    kernel.put("unified/insula-k/sandboxes/sb-3/cgroup.events", "populated 1\nfrozen 0\n");
    CHECK_FALSE(tree.is_frozen(3)); // On its way.
    kernel.put("unified/insula-k/sandboxes/sb-3/cgroup.events", "populated 1\nfrozen 1\n");
    CHECK(tree.is_frozen(3));
    tree.let_die(3);
    CHECK(kernel.read("unified/insula-k/sandboxes/sb-3/cgroup.freeze") ==
          "1"); // Signals kill it as it is.
    CHECK(tree.thaw(file.get()));
    CHECK(kernel.read("unified/insula-k/sandboxes/sb-3/cgroup.freeze") == "0");
  }
  {
    const played_kernel kernel{v1_files()};
    const cgroup_tree tree{v1_hierarchies(kernel), "k"};
    const auto file = freeze_in(tree);
    CHECK(tree.is_frozen(3));
    kernel.put("freezer/insula-k/sandboxes/sb-3/freezer.state", "FREEZING\n");
    CHECK_FALSE(tree.is_frozen(3));
    CHECK(tree.freeze(file.get()));
    CHECK(kernel.read("freezer/insula-k/sandboxes/sb-3/freezer.state").starts_with("FROZEN"));
    CHECK(tree.thaw(file.get()));
    CHECK(kernel.read("freezer/insula-k/sandboxes/sb-3/freezer.state").starts_with("THAWED"));
    CHECK(tree.freeze(file.get()));
    tree.let_die(3);
    CHECK(kernel.read("freezer/insula-k/sandboxes/sb-3/freezer.state").starts_with("THAWED"));
  }
  auto files = v1_files();
  files["unified"] = {"cgroup.procs", "cgroup.freeze"};
  const played_kernel kernel{files};
  auto both = v1_hierarchies(kernel);
  both.back() = {"", kernel.at("unified")};
  const cgroup_tree hybrid{both, "k"};
  REQUIRE(hybrid.mode() == "hybrid");
  freeze_in(hybrid);
  CHECK(kernel.read("unified/insula-k/sandboxes/sb-3/cgroup.freeze") == "1");
}

TEST_CASE("a machine whose cgroups cannot freeze says so", "[runtime][cgroup]") {
  const played_kernel kernel{{{"memory", {"cgroup.procs"}}, {"unified", {"cgroup.procs"}}}};
  for (const auto& in : {cgroup_hierarchy{"memory", kernel.at("memory")},
                         cgroup_hierarchy{"", kernel.at("unified")}}) { // Of an old kernel.
    const cgroup_tree tree{{{"memory", kernel.at("memory")}, in}, "k"};
    REQUIRE(tree.prepare());
    CHECK_FALSE(tree.can_freeze());
    CHECK_FALSE(tree.open_freezer(3));
    CHECK_FALSE(tree.freeze(-1));
    CHECK_FALSE(tree.thaw(-1));
    CHECK_FALSE(tree.is_frozen(3));
    tree.let_die(3);
    tree.sweep();
  }
}

TEST_CASE("sweeping kills what is left, and neither this process nor the one that started it",
          "[runtime][cgroup]") {
  played_kernel kernel{v2_files()};
  const cgroup_tree tree{{{"", kernel.at("unified")}}, "k"};
  REQUIRE(tree.prepare());
  REQUIRE(tree.create(3, some_limits));
  kernel.put("unified/insula-k/sandboxes/sb-3/cgroup.procs", "70001\n70002\n");
  kernel.put("unified/insula-k/host/cgroup.procs",
             std::to_string(::getppid()) + "\n" + std::to_string(::getpid()) + "\n70003\n");
  CHECK(tree.sweep());
  std::sort(kernel.killed.begin(), kernel.killed.end());
  CHECK(kernel.killed == std::vector<pid_t>{70001, 70002, 70003});
  CHECK_FALSE(kernel.exists("unified/insula-k"));
}

TEST_CASE("sweeping touches no other node", "[runtime][cgroup]") {
  const played_kernel kernel{v1_files()};
  const cgroup_tree ours{v1_hierarchies(kernel), "k"};
  const cgroup_tree theirs{v1_hierarchies(kernel), "kk"};
  for (const auto* each : {&ours, &theirs}) {
    REQUIRE(each->prepare());
    REQUIRE(each->create(3, some_limits));
  }
  CHECK(ours.sweep());
  CHECK(kernel.exists("memory/insula-kk/sandboxes/sb-3"));
  CHECK_FALSE(kernel.exists("memory/insula-k"));
}

// ---- The kernel of this machine

namespace {

/// A process that lives in a node's leaf, or in a sandbox's cgroups, until it is killed.
struct inhabitant {
  template <class Enter>
  explicit inhabitant(Enter enter) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char said = enter() ? 'y' : 'n';
      if (::write(ends[1], &said, 1) == 1)
        for (;;)
          ::pause();
    }
    ::close(ends[1]);
    char said = 0;
    REQUIRE(::read(ends[0], &said, 1) == 1);
    ::close(ends[0]);
    CHECK(said == 'y');
  }
  ~inhabitant() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  pid_t pid;
};

std::string first_line(const std::string& path) {
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  return line;
}

/// Looks for directories of this key in every hierarchy in use.
bool left_behind(const cgroup_tree& tree, const std::string& key) {
  return std::any_of(tree.hierarchies().begin(), tree.hierarchies().end(),
                     [&](auto& each) { return fs::exists(each.directory + "/insula-" + key); });
}

} // namespace

TEST_CASE("this machine's cgroups are limited, removed and swept", "[runtime][cgroup][root]") {
  const auto key = "test-" + std::to_string(::getpid());
  const auto tree = cgroup_tree::of_this_process(key);
  CAPTURE(tree.mode());
  REQUIRE_FALSE(tree.hierarchies().empty());
  const inhabitant host{[&] { return static_cast<bool>(tree.prepare()); }};
  const auto made = tree.create(5, some_limits);
  CHECK(made);
  for (const auto& each : tree.hierarchies()) {
    const auto dir = each.directory + "/insula-" + key + "/sandboxes/sb-5";
    CHECK(fs::is_directory(dir));
    const bool unified = each.controller.empty() && tree.mode() == "v2";
    if (each.controller == "memory" || unified)
      CHECK(first_line(dir + (unified ? "/memory.max" : "/memory.limit_in_bytes")) == "285212672");
    if (each.controller == "pids" || unified)
      CHECK(first_line(dir + "/pids.max") == "164");
    if (each.controller == "pids" || unified)
      CHECK(first_line(dir + "/commands/pids.max") == "100");
    if (each.controller == "cpu")
      CHECK(first_line(dir + "/cpu.cfs_quota_us") == "150000");
  }
  CHECK(killed_processes(tree.open_kill_counts(5)) == 0u);
  {
    const inhabitant lives{[&] {
      const auto procs = tree.open_procs(5);
      return procs && std::all_of(procs->begin(), procs->end(),
                                  [](auto& file) { return ::write(file.get(), "0", 1) == 1; });
    }};
    CHECK_FALSE(tree.remove(5));
    CHECK(tree.open_procs(5));
    CHECK(tree.sweep());
    int status = 0;
    CHECK(::waitpid(lives.pid, &status, 0) == lives.pid);
    CHECK(WIFSIGNALED(status));
  }
  CHECK_FALSE(left_behind(tree, key));
  CHECK(tree.sweep());
}

namespace {

/// What of this machine can freeze, alone: each version is tested where both are mounted.
std::vector<std::pair<std::string, std::vector<cgroup_hierarchy>>> freezers() {
  std::vector<std::pair<std::string, std::vector<cgroup_hierarchy>>> found;
  const auto here = cgroup_tree::of_this_process("x");
  for (const auto& each : here.hierarchies())
    if (each.controller.empty())
      found.push_back({"v2", {each}});
  std::ifstream mounts{"/proc/self/mounts"}, groups{"/proc/self/cgroup"};
  std::string without_v2;
  for (std::string line; std::getline(mounts, line);)
    if (line.find(" cgroup2 ") == std::string::npos)
      without_v2 += line + "\n";
  const std::string own{std::istreambuf_iterator<char>{groups}, {}};
  for (const auto& each : find_cgroup_hierarchies(without_v2, own))
    if (each.controller == "freezer")
      found.push_back({"v1", {each}});
  return found;
}

} // namespace

TEST_CASE("what stands still in this machine's cgroups goes on, dies and is swept",
          "[runtime][cgroup][root]") {
  const auto key = "still-" + std::to_string(::getpid());
  for (const auto& [name, hierarchies] : freezers()) {
    CAPTURE(name);
    const cgroup_tree tree{hierarchies, key};
    for (const auto& each : hierarchies) // No prepare(): it would move this process for its limits.
      for (const char* part : {"", "/sandboxes"})
        ::mkdir((each.directory + "/insula-" + key + part).c_str(), 0755);
    const auto made = tree.create(1, {});
    CAPTURE(made ? "" : made.reason().message);
    REQUIRE(made);
    const auto file = tree.open_freezer(1);
    REQUIRE(file);
    int ticks[2];
    REQUIRE(::pipe2(ticks, O_NONBLOCK) == 0);
    const inhabitant counter{[&] {
      const auto procs = tree.open_procs(1);
      if (!procs || ::write(procs->front().get(), "0", 1) != 1)
        return false;
      if (::fork() == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;; ::usleep(1000))
          static_cast<void>(!::write(ticks[1], "t", 1));
      }
      return true;
    }};
    const auto ticks_on = [&] {
      char sink[65'536];
      while (::read(ticks[0], sink, sizeof sink) > 0) {
      }
      ::usleep(50'000);
      return ::read(ticks[0], sink, sizeof sink) > 0;
    };
    CHECK(ticks_on());
    REQUIRE(tree.freeze(file.get()));
    REQUIRE(eventually([&] { return tree.is_frozen(1); }));
    CHECK_FALSE(ticks_on());
    CHECK(tree.thaw(file.get()));
    CHECK(eventually(ticks_on));
    CHECK_FALSE(tree.is_frozen(1));

    REQUIRE(tree.freeze(file.get()));
    REQUIRE(eventually([&] { return tree.is_frozen(1); }));
    CHECK(tree.sweep());
    CHECK_FALSE(left_behind(tree, key));
    ::close(ticks[0]);
    ::close(ticks[1]);
  }
}

TEST_CASE("all slots of this machine's cgroups stand still together, those made meanwhile as well",
          "[runtime][cgroup][root]") {
  const auto key = "all-" + std::to_string(::getpid());
  for (const auto& [name, hierarchies] : freezers()) {
    CAPTURE(name);
    const cgroup_tree tree{hierarchies, key};
    for (const auto& each : hierarchies)
      for (const char* part : {"", "/host", "/sandboxes"})
        ::mkdir((each.directory + "/insula-" + key + part).c_str(), 0755);
    const auto all = tree.open_freezer_of_all();
    REQUIRE(all);
    std::uint32_t slots = 0;
    struct ticking {
      int ticks[2];
      pid_t pid;
      unique_fd freezer;
      bool goes_on() const {
        char sink[65'536];
        while (::read(ticks[0], sink, sizeof sink) > 0) {
        }
        ::usleep(50'000);
        return ::read(ticks[0], sink, sizeof sink) > 0;
      }
    };
    const auto start = [&] {
      const auto slot = ++slots;
      ticking made{};
      REQUIRE(::pipe2(made.ticks, O_NONBLOCK) == 0);
      REQUIRE(tree.create(slot, {}));
      made.freezer = tree.open_freezer(slot);
      const auto procs = tree.open_procs(slot);
      REQUIRE(procs);
      made.pid = ::fork();
      if (made.pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        static_cast<void>(!::write(procs->front().get(), "0", 1));
        for (;; ::usleep(1000))
          static_cast<void>(!::write(made.ticks[1], "t", 1));
      }
      REQUIRE(eventually([&] { return tree.processes(slot) == std::vector{made.pid}; }));
      return made;
    };
    const auto one = start(), two = start();
    REQUIRE(tree.freeze(two.freezer.get()));
    REQUIRE(tree.freeze(all.get()));
    REQUIRE(eventually([&] { return tree.all_frozen(); }));
    const auto late = start();
    CHECK_FALSE(late.goes_on());
    CHECK_FALSE(one.goes_on());
    REQUIRE(tree.thaw(one.freezer.get()));
    CHECK_FALSE(one.goes_on());
    REQUIRE(tree.thaw(all.get()));
    CHECK(eventually([&] { return one.goes_on() && late.goes_on(); }));
    CHECK_FALSE(two.goes_on());

    REQUIRE(tree.freeze(all.get()));
    REQUIRE(eventually([&] { return tree.all_frozen(); }));
    ::kill(two.pid, SIGKILL);
    tree.let_die(2);
    int status = 0;
    CHECK(::waitpid(two.pid, &status, 0) == two.pid);
    CHECK(WTERMSIG(status) == SIGKILL);
    CHECK(eventually([&] { return tree.remove(2); }));
    CHECK(tree.all_frozen());
    CHECK(tree.sweep());
    for (const auto* each : {&one, &late})
      CHECK(::waitpid(each->pid, &status, 0) == each->pid);
    CHECK_FALSE(left_behind(tree, key));
    for (const auto* each : {&one, &two, &late})
      for (const int end : each->ticks)
        ::close(end);
  }
}

TEST_CASE("a slot's cgroups cannot be made twice", "[runtime][cgroup][root]") {
  const auto key = "twice-" + std::to_string(::getpid());
  const auto tree = cgroup_tree::of_this_process(key);
  const inhabitant host{[&] { return static_cast<bool>(tree.prepare()); }};
  CHECK(tree.create(1, {}));
  CHECK_FALSE(tree.create(1, {}));
  CHECK(tree.create(1, some_limits)); // The failure above has removed what it met.
  CHECK(tree.sweep());
  CHECK_FALSE(left_behind(tree, key));
}

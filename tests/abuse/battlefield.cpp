#include "tests/abuse/battlefield.hpp"

#include "tests/support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/stat.h>
#include <sys/statvfs.h>

namespace insula::test {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t growth = 16u << 20;

/// No measurement: in the middle of an attack it takes a second or two, and never waits for its
/// end.
constexpr auto patience_with_delete = 60s;

constexpr const char* ceilings = R"(
sandbox:
  limits: {memory: 128MiB, disk: 64MiB, shm: 16MiB, log: 8MiB, processes: 128, open_files: 4096}
)";

std::uint64_t blocks_of(const fs::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_blocks) * 512 : 0;
}

} // namespace

battlefield::battlefield(const std::string& more)
    : by(std::getenv("INSULA_ABUSE_SUDO") != nullptr ? "sudo " : "")
    , server(ceilings + std::string{by.empty() ? "" : "  privileges: sudo\n"} + more) {
  arm("neighbour");
  arm_victim();
  server_bytes_ = resident_bytes(server.pid());
}

void battlefield::arm(const std::string& id) {
  for (const auto& [name, path] :
       {std::pair{"attack", INSULA_ATTACK}, std::pair{"neighbours", INSULA_NEIGHBOURS}}) {
    std::ifstream file{path, std::ios::binary};
    const std::string program{std::istreambuf_iterator<char>{file}, {}};
    const auto put = server.ask("PUT", "/v1/sandbox/" + id + "/file/workspace/" + name, program);
    REQUIRE(put.status == 200);
    REQUIRE(server.exec(id, {"chmod", "755", name}).exit_code == 0);
  }
}

void battlefield::arm_victim() {
  const auto before = server.sandbox_groups();
  arm("victim");
  victims_groups_.clear();
  for (const auto& each : server.sandbox_groups())
    if (std::find(before.begin(), before.end(), each) == before.end())
      victims_groups_.push_back(each);
}

attack_report battlefield::attack(const std::string& words, std::chrono::milliseconds patience) {
  attack_report report;
  report.stream = std::make_unique<exec_stream>(
    server.port(), "victim", exec_body({"bash", "-c", "exec " + by + "./attack " + words}), "",
    patience);
  if (const auto first = report.stream->next(); first && first->name == "stdout")
    std::istringstream{first->data} >> report.count >> report.why;
  return report;
}

void battlefield::end() {
  CHECK(server.sh("neighbour", "echo $(echo fine)").out == "fine\n");
  CHECK(resident_bytes(server.pid()) < server_bytes_ + growth);
  const auto asked = std::chrono::steady_clock::now();
  CHECK(server.remove("victim") == 204);
  CHECK(std::chrono::steady_clock::now() - asked < patience_with_delete);
  for (const auto& each : victims_groups_)
    CHECK_FALSE(fs::exists(each));
  arm_victim();
}

std::uint64_t battlefield::read_number(const std::vector<std::string>& names) const {
  for (const auto& group : victims_groups_)
    for (const auto& name : names)
      if (std::ifstream file{fs::path{group} / name}; file) {
        std::uint64_t number = 0;
        file >> number;
        return number;
      }
  FAIL("none of the victim's cgroups has " << names.front());
  return 0;
}

long battlefield::processes() const {
  return static_cast<long>(read_number({"pids.current"}));
}

std::uint64_t battlefield::memory_bytes() const {
  return read_number({"memory.current", "memory.usage_in_bytes"});
}

std::uint64_t battlefield::shm_bytes() const {
  for (const auto& group : victims_groups_)
    if (std::ifstream pids{group + "/cgroup.procs"}; pids) {
      std::string pid;
      if (!(pids >> pid)) // They are in the groups below it.
        continue;
      struct statvfs info {};
      REQUIRE(::statvfs(("/proc/" + pid + "/root/dev/shm").c_str(), &info) == 0);
      return (info.f_blocks - info.f_bfree) * info.f_frsize;
    }
  FAIL("the victim has no process");
  return 0;
}

std::uint64_t battlefield::disk_bytes() const {
  struct statvfs info {};
  const auto disk =
    "/proc/" + std::to_string(server.spawner()) + "/root" + server.state() + "/disk";
  REQUIRE(::statvfs(disk.c_str(), &info) == 0);
  return std::uint64_t{info.f_blocks - info.f_bfree} * info.f_frsize;
}

std::uint64_t battlefield::log_bytes() const {
  std::uint64_t all = 0;
  std::error_code gone;
  for (const auto& each : fs::directory_iterator{"/proc/" + std::to_string(server.pid()) + "/fd"})
    if (fs::read_symlink(each.path(), gone).string().starts_with(server.state() + "/logs/"))
      all += blocks_of(each.path());
  return all;
}

} // namespace insula::test

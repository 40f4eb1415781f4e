#include "benchmarks/this_machine.hpp"

#include "benchmarks/built_from.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <thread>

namespace insula::bench {

namespace {

/// What follows `separator` in the first line that begins with this.
std::string value_in(const char* path, const std::string& beginning, char separator) {
  std::ifstream file{path};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(beginning))
      if (const auto from = line.find_first_not_of(" \t\"", line.find(separator) + 1);
          from != line.npos)
        return line.substr(from, line.find_last_not_of(" \t\"") + 1 - from);
  return "unknown";
}

} // namespace

std::string kernel_release() {
  utsname kernel{};
  ::uname(&kernel);
  return kernel.release;
}

std::string cpu_model() {
  return value_in("/proc/cpuinfo", "model name", ':');
}

unsigned usable_cpus() {
  return std::thread::hardware_concurrency();
}

std::string memory_size() {
  struct sysinfo now {};
  ::sysinfo(&now);
  char gib[32];
  std::snprintf(gib, sizeof gib, "%.1f GiB",
                static_cast<double>(now.totalram) * now.mem_unit / (1ull << 30));
  return gib;
}

std::string cgroup_mode() {
  namespace fs = std::filesystem;
  if (fs::exists("/sys/fs/cgroup/cgroup.controllers"))
    return "version 2";
  return fs::exists("/sys/fs/cgroup/unified") ? "versions 1 and 2 side by side" : "version 1";
}

std::string operating_system() {
  return value_in("/etc/os-release", "PRETTY_NAME", '=');
}

std::string built_version() {
  return INSULA_BUILT_VERSION;
}

std::string built_commit() {
  return INSULA_BUILT_COMMIT;
}

} // namespace insula::bench

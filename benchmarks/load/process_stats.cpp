#include "benchmarks/load/process_stats.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace insula::load {

namespace {

std::string proc(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

/// "Name:   123 kB"
std::uint64_t find_kib(const std::string& path, const std::string& field) {
  std::ifstream file{path};
  for (std::string line; std::getline(file, line);)
    if (line.compare(0, field.size() + 1, field + ":") == 0)
      return std::stoull(line.substr(field.size() + 1));
  return 0;
}

pid_t parent_of(pid_t pid) {
  std::ifstream file{proc(pid, "stat")};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos)
    return 0;
  std::istringstream rest{text.substr(end_of_name + 1)};
  char state = 0;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> all;
  for (const auto& each : std::filesystem::directory_iterator{"/proc"})
    if (const auto name = each.path().filename().string();
        name.find_first_not_of("0123456789") == std::string::npos)
      all.push_back(static_cast<pid_t>(std::stol(name)));
  return all;
}

} // namespace

std::chrono::nanoseconds cpu_time(pid_t pid) {
  clockid_t its_clock{};
  timespec used{};
  if (const int refused = ::clock_getcpuclockid(pid, &its_clock); refused != 0)
    throw std::system_error{refused, std::generic_category(), "its CPU clock"};
  if (::clock_gettime(its_clock, &used) != 0)
    throw std::system_error{errno, std::generic_category(), "its CPU clock"};
  return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
}

std::uint64_t status_kib(pid_t pid, const std::string& field) {
  return find_kib(proc(pid, "status"), field);
}

void reset_peak(pid_t pid) {
  std::ofstream{proc(pid, "clear_refs")} << "5\n";
}

std::uint64_t pss_kib(pid_t pid) {
  return find_kib(proc(pid, "smaps_rollup"), "Pss");
}

std::vector<pid_t> family_of(pid_t pid) {
  std::multimap<pid_t, pid_t> children;
  for (const auto each : all_processes())
    children.emplace(parent_of(each), each);
  std::vector<pid_t> family{pid};
  for (std::size_t i = 0; i < family.size(); ++i) {
    const auto [first, last] = children.equal_range(family[i]);
    for (auto at = first; at != last; ++at)
      family.push_back(at->second);
  }
  return family;
}

std::vector<pid_t> find_processes(const std::string& beginning) {
  std::vector<pid_t> found;
  for (const auto each : all_processes()) {
    std::ifstream file{proc(each, "cmdline")};
    std::string words{std::istreambuf_iterator<char>{file}, {}};
    std::replace(words.begin(), words.end(), '\0', ' ');
    if (words.compare(0, beginning.size(), beginning) == 0)
      found.push_back(each);
  }
  return found;
}

std::map<std::string, std::uint64_t> memory_of_machine() {
  std::map<std::string, std::uint64_t> all;
  std::ifstream file{"/proc/meminfo"};
  for (std::string line; std::getline(file, line);)
    if (const auto colon = line.find(':'); colon != std::string::npos)
      all[line.substr(0, colon)] = std::stoull(line.substr(colon + 1));
  return all;
}

machine_time time_of_machine() {
  std::ifstream file{"/proc/stat"};
  std::string cpu;
  file >> cpu;
  machine_time time;
  std::uint64_t jiffies = 0;
  for (int column = 0; column < 8 && file >> jiffies; ++column) {
    time.all += jiffies;
    if (column == 3 || column == 4) // idle and iowait
      time.idle += jiffies;
  }
  return time;
}

} // namespace insula::load

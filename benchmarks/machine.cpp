#include "benchmarks/machine.hpp"

#include "benchmarks/clock.hpp"
#include "benchmarks/interrupt.hpp"
#include "benchmarks/process_stats.hpp"

#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <thread>

namespace insula::bench {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// A machine on which others use less counts as calm.
constexpr double calm_share = 0.10;
constexpr auto looking = 250ms;

/// The first line that a command prints. Not for measuring.
std::string first_line(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> output{::popen(command.c_str(), "r"), ::pclose};
  char line[256] = "";
  if (!output || std::fgets(line, sizeof line, output.get()) == nullptr)
    return {};
  std::string text = line;
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

std::string cpu_model() {
  std::ifstream file{"/proc/cpuinfo"};
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0)
      return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string cgroup_mode() {
  if (fs::exists("/sys/fs/cgroup/cgroup.controllers"))
    return "version 2";
  return fs::exists("/sys/fs/cgroup/unified") ? "versions 1 and 2 side by side" : "version 1";
}

/// Only what it says about the commit is wanted, so a tree of somebody else is no danger.
std::string commit() {
  const auto line =
    first_line("git -c safe.directory='*' -C '" INSULA_SOURCE_DIR
               "' describe --always --dirty=' with changes' --exclude '*' 2>/dev/null");
  return line.empty() ? "unknown" : line;
}

std::string date() {
  const auto now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  return text;
}

double busy_share() {
  const auto before = time_of_machine();
  std::this_thread::sleep_for(looking);
  const auto after = time_of_machine();
  const auto all = static_cast<double>(after.all - before.all);
  return all == 0 ? 0 : 1 - static_cast<double>(after.idle - before.idle) / all;
}

std::string percent(double share) {
  return std::to_string(std::lround(share * 100)) + " %";
}

} // namespace

environment describe_machine(const std::string& insula, const std::string& state,
                             const std::vector<std::string>& words) {
  utsname kernel{};
  ::uname(&kernel);
  std::string command;
  for (const auto& each : words)
    command += (command.empty() ? "" : " ") + each;
  const auto memory = static_cast<double>(memory_of_machine()["MemTotal"]) / (1 << 20);
  char gib[32];
  std::snprintf(gib, sizeof gib, "%.1f GiB", memory);
  environment where{
    {"kernel", kernel.release},
    {"CPU", cpu_model() + ", " + std::to_string(std::thread::hardware_concurrency()) + " usable"},
    {"memory", gib},
    {"cgroups", cgroup_mode()},
    {"state on", first_line("stat -f -c %T '" + state + "'")},
    {"insula", first_line("'" + insula + "' --version")},
    {"commit", commit()},
    {"date", date()},
    {"command", command}};
  if (const int nice = ::getpriority(PRIO_PROCESS, 0); nice != 0)
    where.emplace_back("nice", std::to_string(nice));
#ifndef __OPTIMIZE__
  where.emplace_back("build", "NOT OPTIMIZED: these numbers say nothing about what is shipped");
#endif
  return where;
}

void calm::wait() {
  const auto until = clock::now() + patience_;
  double busy = busy_share();
  while (busy > calm_share && clock::now() < until) {
    throw_if_interrupted();
    busy = busy_share();
  }
  busy_.push_back(busy);
}

void calm::look() {
  busy_.push_back(busy_share());
}

std::string calm::describe() const {
  return "others used " + percent(quantile(busy_, 0.5)) + " of the CPUs (median of " +
         std::to_string(busy_.size()) + " looks between the measurements), at most " +
         percent(quantile(busy_, 1));
}

} // namespace insula::bench

#include "benchmarks/machine.hpp"

#include "benchmarks/clock.hpp"
#include "benchmarks/load/interrupt.hpp"
#include "benchmarks/load/process_stats.hpp"
#include "benchmarks/this_machine.hpp"

#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>
#include <sys/resource.h>
#include <thread>

namespace insula::bench {

namespace {

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

std::string date() {
  const auto now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  return text;
}

double busy_share() {
  const auto before = load::time_of_machine();
  std::this_thread::sleep_for(looking);
  const auto after = load::time_of_machine();
  const auto all = static_cast<double>(after.all - before.all);
  return all == 0 ? 0 : 1 - static_cast<double>(after.idle - before.idle) / all;
}

std::string percent(double share) {
  return std::to_string(std::lround(share * 100)) + " %";
}

} // namespace

environment describe_machine(const std::string& insula, const std::string& state,
                             const std::vector<std::string>& words) {
  std::string command;
  for (const auto& each : words)
    command += (command.empty() ? "" : " ") + each;
  environment where{{"kernel", kernel_release()},
                    {"CPU", cpu_model() + ", " + std::to_string(usable_cpus()) + " usable"},
                    {"memory", memory_size()},
                    {"cgroups", cgroup_mode()},
                    {"state on", first_line("stat -f -c %T '" + state + "'")},
                    {"insula", first_line("'" + insula + "' --version")},
                    {"commit", built_commit()},
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
    load::throw_if_interrupted();
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

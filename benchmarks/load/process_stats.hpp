#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

namespace insula::load {

/// CPU time of all threads of a process, those that have ended included.
std::chrono::nanoseconds cpu_time(pid_t pid);

/// One field of /proc/PID/status that is given in kB, such as VmRSS or VmHWM.
std::uint64_t status_kib(pid_t pid, const std::string& field);

/// VmHWM starts again from what is used now.
void reset_peak(pid_t pid);

/// Memory of a process, shared pages by their share.
std::uint64_t pss_kib(pid_t pid);

/// The process and everything below it.
std::vector<pid_t> family_of(pid_t pid);

/// Processes whose command line begins with this; words are separated by spaces.
std::vector<pid_t> find_processes(const std::string& beginning);

/// /proc/meminfo, in KiB.
std::map<std::string, std::uint64_t> memory_of_machine();

/// Jiffies of all CPUs since the start.
struct machine_time {
  std::uint64_t idle = 0;
  std::uint64_t all = 0;
};
machine_time time_of_machine();

} // namespace insula::load

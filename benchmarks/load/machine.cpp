#include "benchmarks/load/reports.hpp"
#include "benchmarks/this_machine.hpp"

namespace insula::load {

std::map<std::string, std::string> describe_machine() {
  return {{"kernel", bench::kernel_release()},
          {"cpu", bench::cpu_model()},
          {"cpus", std::to_string(bench::usable_cpus())},
          {"memory", bench::memory_size()},
          {"cgroups", bench::cgroup_mode()},
          {"system", bench::operating_system()},
          {"version", bench::built_version()},
          {"commit", bench::built_commit()}};
}

} // namespace insula::load

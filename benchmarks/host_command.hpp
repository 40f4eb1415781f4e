#pragma once

#include <string>
#include <vector>

namespace insula::bench {

struct host_times {
  double first_ms = 0; ///< Until the first byte of output; where there is none, until the end.
  double exit_ms = 0;  ///< Until the program has been waited for.
};

/// Runs a program on the machine itself: the floor under everything that runs one in a sandbox.
/// Throws std::runtime_error unless it exits with 0.
host_times run_on_host(const std::vector<std::string>& argv);

/// The same command inside bubblewrap, with user, pid, net and mount namespaces: the floor of other
/// people's work. No cgroup, no overlay, no seccomp filter.
std::vector<std::string> in_bwrap(const std::vector<std::string>& argv);

/// Where PATH has it; empty when it has not.
std::string find_program(const std::string& name);

} // namespace insula::bench

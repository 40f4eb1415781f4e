#pragma once

#include <string>

/// The machine this runs on, as it says itself: what every measured number depends on.
namespace insula::bench {

std::string kernel_release();
std::string cpu_model();
unsigned usable_cpus();
std::string memory_size();      ///< "23.5 GiB"
std::string cgroup_mode();      ///< "version 2"
std::string operating_system(); ///< "Debian GNU/Linux 12 (bookworm)"

/// What this program was built from.
std::string built_version();
std::string built_commit(); ///< "unknown" where there was no git.

} // namespace insula::bench

#pragma once

#include <linux/filter.h>
#include <vector>

namespace insula::runtime::spawner {

/// The system calls that a sandbox may make, as a compiled filter; everything else answers ENOSYS,
/// so that C libraries fall back. Namespaces, mounts, keyrings, BPF, io_uring, modules, clocks and
/// the rarer socket families are not among them. Compiled once per process (1.6 ms). Empty when
/// libseccomp refused.
std::vector<sock_filter> compile_seccomp_filter();

} // namespace insula::runtime::spawner

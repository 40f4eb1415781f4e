#pragma once

#include <cstdint>
#include <linux/filter.h>
#include <vector>

namespace insula::runtime::spawner {

enum class filter_for : std::uint8_t {
  sandbox,
  mount, ///< The program of one: libfuse calls fusermount only if mount() answers EPERM.
};

/// The system calls that a sandbox may make, as a compiled filter; everything else answers ENOSYS,
/// so that C libraries fall back. Mounts, keyrings, BPF, io_uring, modules and clocks are not among
/// them. Of some calls the arguments decide, and the answer is the errno that programs know for
/// what they ask: EPERM for new namespaces and for filters of sockets, EAFNOSUPPORT for a family of
/// sockets that is not there. `filters_inside`: processes may load filters of their own. Compiled
/// once per process (1.6 ms). Empty when libseccomp refused.
std::vector<sock_filter> compile_seccomp_filter(bool filters_inside,
                                                filter_for whom = filter_for::sandbox);

} // namespace insula::runtime::spawner

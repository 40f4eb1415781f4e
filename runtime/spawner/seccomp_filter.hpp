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
/// so that C libraries fall back. Namespaces, mounts, keyrings, BPF, io_uring, modules, clocks and
/// the rarer socket families are not among them. Compiled once per process (1.6 ms). Empty when
/// libseccomp refused.
std::vector<sock_filter> compile_seccomp_filter(filter_for whom = filter_for::sandbox);

} // namespace insula::runtime::spawner

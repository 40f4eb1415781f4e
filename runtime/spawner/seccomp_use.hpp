#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

/// Filters of system calls that processes hold. No cgroup is charged for the compiled ones, so a
/// watch has to count them.
namespace insula::runtime::spawner {

/// The filters of one process or thread, with those that it was born with. Nothing: it is gone, or
/// the kernel does not tell (before Linux 5.9).
std::optional<std::uint32_t> filters_of(pid_t which);

struct seccomp_use {
  std::uint64_t filters = 0; ///< Above those that each was born with. One that several have by
                             ///< inheritance counts for each, so it is never too low.
  std::size_t looked_at = 0; ///< Threads that were there.
  bool whole = true;         ///< False: there are more than were looked at.
};

/// Of the threads in `list`, a file with one number a line: `tasks` of a cgroup of version 1, or
/// `cgroup.threads`. `each_has`: how many filters a sandbox's processes are born with, which is
/// what filters_of() says of its PID 1. Opens one file of /proc for each, `at_most` of them: 10 µs
/// each. Nothing: the list cannot be read.
std::optional<seccomp_use> filters_in(const std::string& list, std::uint32_t each_has,
                                      std::size_t at_most);

} // namespace insula::runtime::spawner

#pragma once

#include "runtime/spawner/memory_shares.hpp"

#include <cstdint>
#include <sys/types.h>

namespace insula::runtime::spawner {

// What is changed in a sandbox when it becomes somebody's, from outside: nothing inside has the
// right to. Only for one in which nothing has run yet. Each answers 0, or an errno.

/// `process`: a pidfd of its PID 1.
int rename_host(int process, const char* name);

/// The size of its /dev/shm. `pid`: its PID 1.
int resize_shm(pid_t pid, const memory_shares& given);

/// What System V keeps for its processes. `process`: a pidfd of its PID 1; `creator`: who has made
/// its user namespace, as the next. Where this machine does not let root change it, a warning is
/// all that comes of it.
int limit_system_v(int process, uid_t creator, const memory_shares& given);

/// Of its agent and the agent's starter, which hand it down to commands. Raising it takes a right
/// that root in a container may lack: EPERM then.
int limit_open_files(pid_t pid, uid_t creator, std::uint32_t count);

} // namespace insula::runtime::spawner

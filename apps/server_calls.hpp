#pragma once

#include "base/error.hpp"

namespace insula {

/// From here on, no thread of this process makes another system call than those that a server
/// needs: no program is started, nothing is mounted or traced, nothing is typed into a terminal,
/// and a socket is of UNIX, IPv4, IPv6 or the kernel's routes. A call that is not allowed fails
/// with ENOSYS, as one that the kernel does not know, so that a library takes another way; those
/// that would lead out of the server fail with EPERM. Called while the process is root, so that the
/// kernel's ceiling for compiled filters of other users does not count; it has no new privileges
/// already. Errors: io_failed, also where the filter would not hold for every thread.
result<void> allow_only_server_calls();

/// The same for a process that speaks to a registry, which makes no file in memory either: no limit
/// of a process counts those.
result<void> allow_only_fetch_calls();

/// Set to anything, the server may make every call: for debuggers and profilers that run inside of
/// it.
inline constexpr const char* every_call_variable = "INSULA_EVERY_CALL";

} // namespace insula

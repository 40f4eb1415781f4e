#pragma once

#include "apps/config.hpp"

namespace insula {

/// A node's life, from the configuration to the last line of its log. `from` is what `values` were
/// made of, and is read again at SIGHUP. Returns the exit status: 0 after Ctrl-C or SIGTERM, 1 when
/// it could not start.
int serve(const config& values, const config_origin& from);

/// By whom one server is replaced by the next: in the environment of that one, the descriptors of
/// the sockets that it is to take over, and of a pipe into which it says "ready <adopted>\n".
inline constexpr char listen_variable[] = "INSULA_LISTEN_FDS";
inline constexpr char ready_variable[] = "INSULA_READY_FD";
/// Before that: with this variable, serve() only looks whether this version could begin beside the
/// nodes of its cluster, and changes nothing. It says on stderr why not, and returns 1 then.
inline constexpr char check_variable[] = "INSULA_CHECK_ONLY";

} // namespace insula

#pragma once

#include "base/unique_fd.hpp"

#include <cstdint>
#include <vector>

namespace insula::runtime::spawner {

/// Makes TCP sockets that belong to the network of the sandbox whose PID 1 the pidfd `process` is:
/// non-blocking, close-on-exec, connected to nothing. Takes 10 µs each. Answers 0, or an errno with
/// nothing made. Of a spawner only: its one thread goes there and back.
int make_sockets(int process, bool ipv6, std::uint32_t count, std::vector<unique_fd>& made);

} // namespace insula::runtime::spawner

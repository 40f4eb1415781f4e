#pragma once

#include <cstdint>

namespace insula::runtime::agent {

/// Opens a terminal of the sandbox's own, of `size` = columns | rows << 16, and makes it stdin,
/// stdout and stderr and the controlling terminal of this process, which has just begun a session.
/// Its master goes through `channel`. Runs in a child that has already become the sandbox's user,
/// whose terminal it is then. False with errno.
bool enter_terminal(int channel, std::uint32_t size);

} // namespace insula::runtime::agent

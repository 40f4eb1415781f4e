#pragma once

#include "base/limits.hpp"

#include <chrono>

namespace insula::runtime {

/// How long a shell has for what it usually does at once.
struct shell_patience {
  std::chrono::milliseconds look = limits::look_around_patience; ///< To say where it is.
  std::chrono::milliseconds grace = limits::shell_grace;         ///< To come back from force,
  std::chrono::milliseconds kill = limits::shell_kill_patience;  ///< and its keeper to see to that.
};

} // namespace insula::runtime

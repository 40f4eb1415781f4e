#pragma once

#include "apps/config.hpp"

namespace insula {

/// A node's life, from the configuration to the last line of its log. Returns the exit status: 0
/// after Ctrl-C or SIGTERM, 1 when it could not start.
int serve(const config& values);

} // namespace insula

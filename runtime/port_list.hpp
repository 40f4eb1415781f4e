#pragma once

#include "base/network.hpp"

#include <string_view>
#include <vector>

namespace insula::runtime {

/// What an agent's list of ports says (agent/port_list.hpp), by port. Untrusted: a line that is
/// none is left out, as are the gateway's own listeners.
std::vector<listening_port> parse_port_list(std::string_view text);

} // namespace insula::runtime

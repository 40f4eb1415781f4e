#pragma once

#include "base/error.hpp"
#include "base/network.hpp"
#include "base/unique_fd.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <string_view>
#include <vector>

namespace insula::runtime {

/// What an agent's list of ports says (agent/port_list.hpp), by port. Untrusted: a line that is
/// none is left out, as are the gateway's own listeners.
std::vector<listening_port> parse_port_list(std::string_view text);

/// Reads such a list to its end. Calls back on the thread of `io`. Errors: deadline_exceeded (after
/// limits::port_list_patience), io_failed (it is longer than limits::port_list_bytes, or was cut).
void read_port_list(boost::asio::io_context& io, unique_fd channel,
                    std::function<void(result<std::vector<listening_port>>)> tell);

} // namespace insula::runtime

#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace insula::runtime {

/// Reads what an agent answers, such as a list as lines of text, to its end. Untrusted. Calls back
/// on the thread of `io`. Errors: deadline_exceeded (after `patience`), io_failed (it is longer
/// than `most_bytes`, or was cut).
void read_agent_list(boost::asio::io_context& io, unique_fd channel,
                     std::chrono::milliseconds patience, std::size_t most_bytes,
                     std::function<void(result<std::string>)> tell);

} // namespace insula::runtime

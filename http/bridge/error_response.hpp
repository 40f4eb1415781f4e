#pragma once

#include "base/error.hpp"
#include "http/exchange.hpp"

namespace insula::http::bridge {

/// What was being done when it failed; the bridge names the same failure differently.
enum class step : std::uint8_t { request, find_sandbox, exec, read_file, write_file, session };

/// The bridge's answer to a failure. The only place where an errc becomes a status.
response error_response(step during, const error& why);

} // namespace insula::http::bridge

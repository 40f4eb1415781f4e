#pragma once

#include "http/bridge/api.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace insula::http::bridge {

/// Answers once something accepts connections at this port of the sandbox, on its loopback, or else
/// when the time is up. Starts nothing: a sandbox that does not run is an error.
void wait_for_port(std::shared_ptr<const services> with, std::string id, std::uint16_t port,
                   std::chrono::milliseconds timeout, const reply& to);

} // namespace insula::http::bridge

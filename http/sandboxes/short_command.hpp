#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"
#include "http/sandboxes/services.hpp"

#include <functional>
#include <string>

namespace insula::http {

/// How a command has ended of which only that matters.
struct short_outcome {
  process_end end;
  std::string out, err; ///< The first 64 KiB of each.
};

/// Runs a command in a sandbox and calls `then` once, on a CAF worker, when it has ended. The
/// sandbox is not started for it unless the request's context says so. `wanted` has its context.
void run_short_command(const services& with, const std::string& id, exec_request wanted,
                       std::function<void(const result<short_outcome>&)> then);

} // namespace insula::http

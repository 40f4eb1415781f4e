#pragma once

#include "http/bridge/api.hpp"

#include <memory>
#include <vector>

/// What OpenSandbox's clients ask for. So far the sandbox's egress policy, which they reach through
/// the proxy to its port 18080; nothing in the sandbox listens there.
namespace insula::http::opensandbox {

/// With and without /v1 before them, as clients find them. They start nothing, and know no sandbox
/// that has never run.
std::vector<route> routes(const std::shared_ptr<const bridge::services>& with);

} // namespace insula::http::opensandbox

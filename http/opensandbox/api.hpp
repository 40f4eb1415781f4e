#pragma once

#include "http/api/dispatcher.hpp"

#include <memory>
#include <string>
#include <vector>

/// What OpenSandbox's clients ask for: sandboxes, and through the proxy to two ports of theirs what
/// one may reach (18080) and execd (44772); nothing in the sandbox listens there.
namespace insula::http::opensandbox {

/// With and without /v1 before them, as clients find them. They start nothing, and know no sandbox
/// that has never run.
std::vector<route> routes(const std::shared_ptr<const bridge::services>& with);

/// 404, in the words of these clients: their libraries look for a code and a message in JSON.
/// `methods`: that this path takes; empty: there is no such path.
response no_route(const std::string& methods = {});

} // namespace insula::http::opensandbox

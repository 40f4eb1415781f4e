#pragma once

#include "http/api/public_api.hpp"
#include "http/sandboxes/services.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// What OpenSandbox's clients ask for: sandboxes, and through the proxy to two ports of theirs what
/// one may reach (18080) and execd (44772); nothing in the sandbox listens there.
namespace insula::http::opensandbox {

using shared_services = std::shared_ptr<const services>;

class fork_table;

/// Where clients look for execd in a sandbox.
inline constexpr std::uint16_t execd_port = 44772;
/// And for what the sandbox may reach.
inline constexpr std::uint16_t egress_port = 18080;

/// With and without /v1 before its paths, as clients find them. Its routes start nothing, and know
/// no sandbox that has never run. Without services they can be listed but not called.
std::shared_ptr<const public_api> make_api(shared_services with);

/// execd alone, for one sandbox, which is made with its first use.
std::shared_ptr<const public_api> make_execd_api(shared_services with, std::string id);

/// Below `prefix`, which is empty or /v1.
std::vector<route> lifecycle_routes(const shared_services& with,
                                    const std::shared_ptr<fork_table>& forks,
                                    const std::string& prefix);
std::vector<route> egress_routes(const shared_services& with, const std::string& prefix);

/// 404, in the words of these clients: their libraries look for a code and a message in JSON.
/// `methods`: that this path takes; empty: there is no such path.
response no_route(const std::string& methods = {});
response unknown_sandbox(const std::string& id);

} // namespace insula::http::opensandbox

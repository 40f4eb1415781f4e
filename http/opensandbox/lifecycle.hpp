#pragma once

#include "http/api/dispatcher.hpp"
#include "http/api/router.hpp"

#include <memory>
#include <string>
#include <vector>

/// OpenSandbox's lifecycle server: sandboxes as its clients make, look at and end them.
namespace insula::http::opensandbox {

/// Below `prefix`, which is empty or /v1.
std::vector<route> lifecycle_routes(std::shared_ptr<const bridge::services> with,
                                    const std::string& prefix);

} // namespace insula::http::opensandbox

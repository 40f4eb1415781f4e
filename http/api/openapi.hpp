#pragma once

#include "http/api/public_api.hpp"

#include <memory>
#include <string>
#include <vector>

namespace insula::http {

/// An OpenAPI 3.1 document of all routes that have an operation, with the parts that each API
/// brings.
std::string openapi_text(const std::vector<std::shared_ptr<const public_api>>& apis);

} // namespace insula::http

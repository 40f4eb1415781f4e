#pragma once

#include <string>

namespace insula::http {

/// The OpenAPI 3.1 document of every route, as compact JSON. It comes out of the route table.
std::string openapi_document();

} // namespace insula::http

#pragma once

#include "http/api/embedded_page.hpp"

#include <string>

namespace insula::http {

/// What shows an OpenAPI document, with the document inside. Making it takes a moment: call it once
/// for a document.
embedded_page make_openapi_page(const std::string& document);

} // namespace insula::http

#pragma once

#include "http/api/embedded_page.hpp"

namespace insula::http {

/// The document as a page that shows it and sends requests. Made when first asked for, which takes
/// some 20 ms, and kept: 2.5 MB. Any thread.
const embedded_page& shared_openapi_page();

} // namespace insula::http

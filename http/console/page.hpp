#pragma once

#include "http/api/embedded_page.hpp"

namespace insula::http::console {

/// What web/ has, as one page. Made when first asked for and kept: 0.7 MB. Any thread.
const embedded_page& shared_page();

} // namespace insula::http::console

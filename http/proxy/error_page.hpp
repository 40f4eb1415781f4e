#pragma once

#include "http/transport/exchange.hpp"

#include <string>
#include <string_view>

namespace insula::http::proxy {

/// The answer where the server behind a proxy gives none: JSON, or `as_page` HTML for a browser
/// that shows the answer. `retries`: the page asks again by itself, every two seconds.
response error_answer(int status, std::string_view code, const std::string& why, bool as_page,
                      bool retries);

} // namespace insula::http::proxy

#pragma once

#include "http/exchange.hpp"

#include <string>

namespace insula::http {

/// Status line and header of an answer, the empty line not included, so that fields can follow.
std::string status_and_type(int status, std::string_view content_type);

/// A whole response after which the connection is closed, as it goes over the wire.
std::string closing_response(const response& answer);

} // namespace insula::http

#pragma once

#include "http/transport/exchange.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// Status line and header of an answer, the empty line not included, so that fields can follow.
std::string status_and_type(int status, std::string_view content_type);

/// Adds header fields, a line each.
void append_fields(std::string& head, const std::vector<header_field>& fields);

/// A whole response after which the connection is closed, as it goes over the wire. `more_fields`:
/// lines of its header.
std::string closing_response(const response& answer, std::string_view more_fields = {});

} // namespace insula::http

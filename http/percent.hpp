#pragma once

#include <string>
#include <string_view>

namespace insula::http {

/// Decodes %xx, once. What is no escape, or does not make UTF-8, stays as it is written. A plus
/// sign is a plus sign.
std::string percent_decode(std::string_view text);

/// What the first parameter of this name says in a query, where a plus sign is a blank. Empty: it
/// is not there.
std::string form_value(std::string_view query, std::string_view name);

} // namespace insula::http

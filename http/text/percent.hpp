#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// Decodes %xx, once. What is no escape, or does not make UTF-8, stays as it is written. A plus
/// sign is a plus sign.
std::string percent_decode(std::string_view text);

/// What the first parameter of this name says in a query, where a plus sign is a blank. Empty: it
/// is not there.
std::string form_value(std::string_view query, std::string_view name);

/// The same of every one of this name, in their order.
std::vector<std::string> form_values(std::string_view query, std::string_view name);

/// Letters, digits and -._~ are as they are; the rest is %XX.
std::string percent_encode(std::string_view text);

} // namespace insula::http

#pragma once

#include <string>
#include <string_view>

namespace insula::http {

/// Decodes %xx, once. What is no escape, or does not make UTF-8, stays as it is written. A plus
/// sign is a plus sign.
std::string percent_decode(std::string_view text);

} // namespace insula::http

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace insula {

/// With padding (RFC 4648, 4).
std::string base64(std::string_view bytes);
/// None: `text` is not the one spelling of any bytes.
std::optional<std::string> from_base64(std::string_view text);

/// The same for the alphabet of addresses, without padding (RFC 4648, 5).
std::string base64url(std::string_view bytes);
std::optional<std::string> from_base64url(std::string_view text);

} // namespace insula

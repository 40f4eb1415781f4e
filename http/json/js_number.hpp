#pragma once

#include <optional>
#include <string_view>

namespace insula::http {

/// What JavaScript's Number() makes of a text: decimal, exponent, 0x10, 0o17, 0b1, Infinity, blanks
/// around it; only blanks are 0. None: NaN.
std::optional<double> js_number(std::string_view text);

} // namespace insula::http

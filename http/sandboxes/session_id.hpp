#pragma once

#include <string_view>

namespace insula::http {

/// The session that cannot be deleted.
inline constexpr std::string_view default_session = "default";

/// A session's id as clients may choose it: 1 to 128 of [a-zA-Z0-9._-] without `..`.
bool is_session_id(std::string_view text);

} // namespace insula::http

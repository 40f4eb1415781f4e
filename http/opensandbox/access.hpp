#pragma once

#include "http/api/access.hpp"

/// How OpenSandbox's clients show the key.
namespace insula::http::opensandbox {

inline constexpr std::string_view key_field = "OPEN-SANDBOX-API-KEY";
inline constexpr std::string_view token_field = "X-EXECD-ACCESS-TOKEN";

namespace access {

extern const access_scheme* const key;       ///< In their own header, or as everywhere.
extern const access_scheme* const lifecycle; ///< The same, with the lifecycle server's words.
extern const access_scheme* const execd;     ///< The same, or in execd's header, or a token for it.

} // namespace access

} // namespace insula::http::opensandbox

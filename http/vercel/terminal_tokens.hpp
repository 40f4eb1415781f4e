#pragma once

#include "http/vercel/ids.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Tokens for one connection to a terminal of one session. They are signed with the secret of the
/// node, which all nodes of a cluster have, and kept nowhere until they are used.
namespace insula::http::vercel {

/// How long a token is good, in milliseconds.
inline constexpr std::int64_t terminal_token_ms = 60'000;

struct terminal_token {
  std::int64_t issued_ms = 0; ///< Since 1970.
  std::string name = {};      ///< No other token has it.

  std::int64_t expires_ms() const { return issued_ms + terminal_token_ms; }
};

std::string make_terminal_token(std::string_view secret, const session_id& of, std::int64_t now_ms);

/// None: it is no token of this session's, or has expired.
std::optional<terminal_token> read_terminal_token(std::string_view secret, const session_id& of,
                                                  std::string_view token, std::int64_t now_ms);

} // namespace insula::http::vercel

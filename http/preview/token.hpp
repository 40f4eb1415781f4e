#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace insula::http::preview {

/// What stands in for the key at one port of one sandbox, until a time: `<seconds>.<signature>`,
/// of letters, digits and the dot. Whoever has it can read when it ends and change nothing.
using token_time = std::chrono::sys_seconds;

inline token_time token_now() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

/// `secret`: only this node's. The signature is HMAC-SHA256.
std::string sign_token(std::string_view secret, std::string_view id, std::uint16_t port,
                       token_time ends);

/// When it ends, if this node has signed it, for this port, and it has not ended. Takes the same
/// time wherever the first difference is.
std::optional<token_time> check_token(std::string_view secret, std::string_view id,
                                      std::uint16_t port, std::string_view token, token_time now);

} // namespace insula::http::preview

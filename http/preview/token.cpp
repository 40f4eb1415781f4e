#include "http/preview/token.hpp"

#include "base/id.hpp"
#include "http/text/hmac.hpp"

#include <charconv>

namespace insula::http::preview {

std::string sign_token(std::string_view secret, std::string_view id, std::uint16_t port,
                       token_time ends) {
  const auto when = std::to_string(ends.time_since_epoch().count());
  // No part can hold a line's end, and nothing else is signed in this form with the same secret.
  std::string text = "insula preview\n";
  ((text += id) += "\n") += std::to_string(port) + "\n" + when;
  const auto digest = hmac_sha256(secret, text);
  return when + "." + base32(reinterpret_cast<const unsigned char*>(digest.data()), digest.size());
}

std::optional<token_time> check_token(std::string_view secret, std::string_view id,
                                      std::uint16_t port, std::string_view token, token_time now) {
  const auto dot = token.find('.');
  std::int64_t seconds = 0;
  const auto [end, why] =
    std::from_chars(token.data(), token.data() + std::min(dot, token.size()), seconds);
  if (dot == std::string_view::npos || why != std::errc{} || end != token.data() + dot)
    return std::nullopt;
  const token_time ends{std::chrono::seconds{seconds}};
  const auto wanted = sign_token(secret, id, port, ends);
  if (!is_same_secret(wanted, token) || ends <= now)
    return std::nullopt;
  return ends;
}

} // namespace insula::http::preview

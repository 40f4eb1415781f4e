#include "http/vercel/terminal_tokens.hpp"

#include "base/id.hpp"
#include "http/text/hmac.hpp"

#include <algorithm>
#include <charconv>

namespace insula::http::vercel {

namespace {

constexpr std::size_t longest_terminal_token = 128;
/// Nodes' clocks differ a little, and another one may have issued it.
constexpr std::int64_t clock_difference_ms = 10'000;

std::string text_of(std::string_view secret, const session_id& of, const terminal_token& token) {
  const auto said = std::to_string(token.issued_ms) + '.' + token.name;
  // No part can hold a line's end, and nothing else is signed in this form with the same secret.
  const auto digest = hmac_sha256(secret, "insula vercel terminal\n" + of.text() + '\n' + said);
  return said + '.' + base32(reinterpret_cast<const unsigned char*>(digest.data()), digest.size());
}

} // namespace

std::string make_terminal_token(std::string_view secret, const session_id& of,
                                std::int64_t now_ms) {
  return text_of(secret, of, {now_ms, sandbox_id::generate().str()});
}

std::optional<terminal_token> read_terminal_token(std::string_view secret, const session_id& of,
                                                  std::string_view token, std::int64_t now_ms) {
  if (token.size() > longest_terminal_token)
    return std::nullopt;
  const auto first = token.find('.'), second = token.find('.', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos)
    return std::nullopt;
  terminal_token is;
  const auto* const end = token.data() + first;
  const auto [at, why] = std::from_chars(token.data(), end, is.issued_ms);
  if (why != std::errc{} || at != end)
    return std::nullopt;
  is.name = token.substr(first + 1, second - first - 1);
  if (!is_same_secret(text_of(secret, of, is), token) || is.expires_ms() <= now_ms ||
      is.issued_ms > now_ms + clock_difference_ms)
    return std::nullopt;
  return is;
}

} // namespace insula::http::vercel

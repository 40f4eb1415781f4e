#include "http/text/base64url.hpp"

#include <cstdint>

namespace insula::http {

namespace {

constexpr std::string_view alphabet =
  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

} // namespace

std::string base64url(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() * 4 + 2) / 3);
  std::uint32_t held = 0;
  int bits = 0;
  for (const char each : bytes) {
    held = held << 8 | static_cast<unsigned char>(each);
    for (bits += 8; bits >= 6; bits -= 6)
      text += alphabet[held >> (bits - 6) & 63];
  }
  if (bits > 0)
    text += alphabet[held << (6 - bits) & 63];
  return text;
}

std::optional<std::string> from_base64url(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t held = 0;
  int bits = 0;
  for (const char each : text) {
    const auto value = alphabet.find(each);
    if (value == std::string_view::npos)
      return std::nullopt;
    held = held << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>(held >> bits & 255);
    }
  }
  const bool has_rest = bits == 6 || (held & ((1u << bits) - 1)) != 0;
  return has_rest ? std::nullopt : std::optional{std::move(bytes)};
}

} // namespace insula::http

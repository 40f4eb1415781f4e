#include "base/base64.hpp"

#include <array>
#include <cstdint>

namespace insula {

namespace {

constexpr std::string_view plain_letters =
  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view url_letters =
  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What the letters of an alphabet stand for; what is none of it, for more than 63.
constexpr std::array<unsigned char, 256> values_of(std::string_view letters) {
  std::array<unsigned char, 256> values{};
  values.fill(255);
  for (std::size_t i = 0; i < letters.size(); ++i)
    values[static_cast<unsigned char>(letters[i])] = static_cast<unsigned char>(i);
  return values;
}

constexpr auto plain_values = values_of(plain_letters);
constexpr auto url_values = values_of(url_letters);

std::string encoded(std::string_view bytes, std::string_view letters) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  std::uint32_t held = 0;
  int bits = 0;
  for (const char each : bytes) {
    held = held << 8 | static_cast<unsigned char>(each);
    for (bits += 8; bits >= 6; bits -= 6)
      text += letters[held >> (bits - 6) & 63];
  }
  if (bits > 0)
    text += letters[held << (6 - bits) & 63];
  return text;
}

std::optional<std::string> decoded(std::string_view text,
                                   const std::array<unsigned char, 256>& values) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t held = 0;
  int bits = 0;
  for (const char each : text) {
    const auto value = values[static_cast<unsigned char>(each)];
    if (value > 63)
      return std::nullopt;
    held = held << 6 | value;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>(held >> bits & 255);
    }
  }
  const bool has_rest = bits == 6 || (held & ((1u << bits) - 1)) != 0;
  return has_rest ? std::nullopt : std::optional{std::move(bytes)};
}

} // namespace

std::string base64(std::string_view bytes) {
  auto text = encoded(bytes, plain_letters);
  text.append((4 - text.size() % 4) % 4, '=');
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0)
    return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i)
    text.remove_suffix(1);
  return decoded(text, plain_values);
}

std::string base64url(std::string_view bytes) {
  return encoded(bytes, url_letters);
}

std::optional<std::string> from_base64url(std::string_view text) {
  return decoded(text, url_values);
}

} // namespace insula

#pragma once

#include <span>
#include <string>

namespace insula {

/// Two of 0-9 and a-f for each byte.
inline std::string to_hex(std::span<const unsigned char> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const auto each : bytes) {
    text += digits[each >> 4];
    text += digits[each & 15];
  }
  return text;
}

} // namespace insula

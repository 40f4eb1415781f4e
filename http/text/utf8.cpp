#include "http/text/utf8.hpp"

#include <algorithm>
#include <utility>

namespace insula::http {

namespace {

struct shape {
  std::size_t length = 0;           ///< Of the whole character; 0: no character begins so.
  unsigned char second_low = 0x80;  ///< The narrower range of the second byte excludes
  unsigned char second_high = 0xbf; ///< overlong forms, surrogates and what is above U+10FFFF.
};

shape shape_of(unsigned char lead) {
  if (lead < 0x80)
    return {1};
  if (lead >= 0xc2 && lead <= 0xdf)
    return {2};
  if (lead >= 0xe0 && lead <= 0xef)
    return {3, static_cast<unsigned char>(lead == 0xe0 ? 0xa0 : 0x80),
            static_cast<unsigned char>(lead == 0xed ? 0x9f : 0xbf)};
  if (lead >= 0xf0 && lead <= 0xf4)
    return {4, static_cast<unsigned char>(lead == 0xf0 ? 0x90 : 0x80),
            static_cast<unsigned char>(lead == 0xf4 ? 0x8f : 0xbf)};
  return {};
}

/// How many bytes at the beginning of `text` fit the shape that its first byte announces.
std::size_t fitting(std::string_view text, const shape& want) {
  std::size_t n = 1;
  for (; n < std::min(text.size(), want.length); ++n) {
    const auto byte = static_cast<unsigned char>(text[n]);
    if (byte < (n == 1 ? want.second_low : 0x80) || byte > (n == 1 ? want.second_high : 0xbf))
      break;
  }
  return n;
}

} // namespace

std::size_t utf8_character(std::string_view text) {
  if (text.empty())
    return 0;
  const auto want = shape_of(static_cast<unsigned char>(text.front()));
  return want.length != 0 && fitting(text, want) == want.length ? want.length : 0;
}

std::size_t utf8_incomplete_tail(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const auto tail = text.substr(text.size() - n);
    const auto want = shape_of(static_cast<unsigned char>(tail.front()));
    if (want.length > n && fitting(tail, want) == n)
      return n;
  }
  return 0;
}

std::string to_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto n = utf8_character(bytes);
    if (n == 0)
      text += "\xef\xbf\xbd";
    else
      text += bytes.substr(0, n);
    bytes.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return text;
}

std::string utf8_holdback::feed(std::string bytes) {
  if (!held_.empty())
    bytes.insert(0, std::exchange(held_, {}));
  const auto tail = utf8_incomplete_tail(bytes);
  held_.assign(bytes, bytes.size() - tail, tail);
  bytes.resize(bytes.size() - tail);
  return bytes;
}

std::string utf8_holdback::flush() {
  return std::exchange(held_, {});
}

} // namespace insula::http

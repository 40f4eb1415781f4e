#include "http/json/ascii.hpp"

#include "http/text/utf8.hpp"

#include <array>
#include <cstdint>
#include <cstring>

namespace insula::http::json {

namespace {

constexpr std::string_view digits = "0123456789ABCDEF";

/// What a byte becomes: 0: it stands for itself. 'u': four digits follow. Else the letter behind a
/// backslash.
constexpr std::array<char, 0x80> make_escapes() {
  std::array<char, 0x80> all{};
  for (std::size_t i = 0; i < 0x20; ++i)
    all[i] = 'u';
  all['\b'] = 'b';
  all['\f'] = 'f';
  all['\n'] = 'n';
  all['\r'] = 'r';
  all['\t'] = 't';
  all['"'] = '"';
  all['\\'] = '\\';
  return all;
}
constexpr auto escapes = make_escapes();

constexpr std::uint64_t each_byte(unsigned char of) {
  return 0x0101010101010101ull * of;
}

/// Whether one of eight bytes is a control character, a quote, a backslash, or not ASCII.
constexpr bool any_special(std::uint64_t eight) {
  const auto any_zero = [](std::uint64_t in) { return (in - each_byte(1)) & ~in; };
  const auto found = (eight - each_byte(0x20)) | any_zero(eight ^ each_byte('"')) |
                     any_zero(eight ^ each_byte('\\')) | eight;
  return (found & each_byte(0x80)) != 0;
}

bool is_plain(char one) {
  const auto byte = static_cast<unsigned char>(one);
  return byte < 0x80 && escapes[byte] == 0;
}

/// How many bytes at the beginning stand for themselves.
std::size_t plain_bytes(std::string_view text) {
  std::size_t n = 0;
  for (std::uint64_t eight = 0; n + sizeof eight <= text.size(); n += sizeof eight) {
    std::memcpy(&eight, text.data() + n, sizeof eight);
    if (any_special(eight))
      break;
  }
  while (n < text.size() && is_plain(text[n]))
    ++n;
  return n;
}

void append_unit(std::string& to, std::uint32_t unit) {
  const std::array<char, 6> text{'\\',
                                 'u',
                                 digits[unit >> 12 & 0xf],
                                 digits[unit >> 8 & 0xf],
                                 digits[unit >> 4 & 0xf],
                                 digits[unit & 0xf]};
  to.append(text.data(), text.size());
}

/// `character` is valid UTF-8 of more than one byte.
std::uint32_t code_point(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character.front());
  std::uint32_t point = lead & (0x7fu >> character.size());
  for (const char each : character.substr(1))
    point = point << 6 | (static_cast<unsigned char>(each) & 0x3fu);
  return point;
}

void append_point(std::string& to, std::uint32_t point) {
  if (point < 0x10000)
    return append_unit(to, point);
  point -= 0x10000;
  append_unit(to, 0xd800 | point >> 10);
  append_unit(to, 0xdc00 | (point & 0x3ff));
}

} // namespace

void append_ascii(std::string& to, std::string_view bytes) {
  constexpr std::uint32_t replacement = 0xfffd;
  while (!bytes.empty()) {
    const auto plain = plain_bytes(bytes);
    to.append(bytes.substr(0, plain));
    bytes.remove_prefix(plain);
    // Such bytes come in rows.
    while (!bytes.empty() && !is_plain(bytes.front())) {
      const auto lead = static_cast<unsigned char>(bytes.front());
      std::size_t length = 1;
      if (lead >= 0x80) {
        length = utf8_character(bytes);
        append_point(to, length == 0 ? replacement : code_point(bytes.substr(0, length)));
        length = length == 0 ? 1 : length;
      } else if (const char escape = escapes[lead]; escape == 'u') {
        append_unit(to, lead);
      } else {
        (to += '\\') += escape;
      }
      bytes.remove_prefix(length);
    }
  }
}

} // namespace insula::http::json

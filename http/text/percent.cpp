#include "http/text/percent.hpp"

#include "http/text/utf8.hpp"

#include <algorithm>
#include <utility>

namespace insula::http {

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

/// The bytes of up to four escapes in a row at the beginning of `text`: one character, at most.
std::string leading_escapes(std::string_view text) {
  std::string bytes;
  while (bytes.size() < 4 && text.size() >= 3 && text[0] == '%') {
    const int high = hex_digit(text[1]);
    const int low = hex_digit(text[2]);
    if (high < 0 || low < 0)
      break;
    bytes += static_cast<char>(high * 16 + low);
    text.remove_prefix(3);
  }
  return bytes;
}

std::string decode_form_value(std::string_view text) {
  std::string spaced{text};
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  return percent_decode(spaced);
}

} // namespace

std::string percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  while (!text.empty()) {
    std::size_t taken = 0;
    if (text.front() == '%') {
      const auto bytes = leading_escapes(text);
      taken = utf8_character(bytes);
      decoded.append(bytes, 0, taken);
    }
    if (taken == 0)
      decoded += text.front();
    text.remove_prefix(taken == 0 ? 1 : 3 * taken);
  }
  return decoded;
}

std::vector<std::string> form_values(std::string_view query, std::string_view name) {
  std::vector<std::string> all;
  while (!query.empty()) {
    const auto pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const auto sign = std::min(pair.find('='), pair.size());
    if (decode_form_value(pair.substr(0, sign)) == name)
      all.push_back(decode_form_value(pair.substr(std::min(pair.size(), sign + 1))));
  }
  return all;
}

std::string form_value(std::string_view query, std::string_view name) {
  auto all = form_values(query, name);
  return all.empty() ? std::string{} : std::move(all.front());
}

std::string percent_encode(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF", plain = "-._~";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
        plain.find(c) != std::string_view::npos)
      encoded += c;
    else
      ((encoded += '%') += digits[byte >> 4]) += digits[byte & 15];
  }
  return encoded;
}

} // namespace insula::http

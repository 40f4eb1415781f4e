#include "http/auth.hpp"

#include "http/header_text.hpp"
#include "http/percent.hpp"

#include <algorithm>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <utility>

namespace insula::http {

namespace {
constexpr std::string_view scheme = "Bearer ";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::string base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const auto size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                    reinterpret_cast<const unsigned char*>(bytes.data()),
                                    static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

/// As far as it makes sense.
std::string from_base64(std::string_view text) {
  text =
    text.substr(0, text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                          "0123456789+/-_"));
  std::string padded{text};
  std::replace(padded.begin(), padded.end(), '-', '+');
  std::replace(padded.begin(), padded.end(), '_', '/');
  padded.resize((padded.size() + 3) / 4 * 4, 'A');
  std::string bytes(padded.size() / 4 * 3 + 1, '\0');
  const auto size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                    reinterpret_cast<const unsigned char*>(padded.data()),
                                    static_cast<int>(padded.size()));
  bytes.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return bytes;
}
} // namespace

key_check::key_check(std::string key)
    : key_(std::move(key)) {
  if (!is_long())
    return;
  for (std::size_t before = 0; before < encoded_.size(); ++before) {
    const auto all = base64(std::string(before, 'x') + key_);
    const auto first = (before * 8 + 5) / 6;
    const auto last = (before + key_.size()) * 8 / 6;
    encoded_[before] = all.substr(first, last - first);
  }
}

bool key_check::is_plain_in(std::string_view text) const {
  const auto ends_word = [&](std::size_t at) {
    return at >= text.size() || !is_letter_or_digit(text[at]);
  };
  for (auto at = text.find(key_); at != std::string_view::npos; at = text.find(key_, at + 1))
    if (is_long() || (ends_word(at - 1) && ends_word(at + key_.size())))
      return true;
  return false;
}

bool key_check::is_in(std::string_view text) const {
  if (open())
    return false;
  if (text.find('%') == std::string_view::npos)
    return is_readable_in(text);
  return is_readable_in(text) || is_readable_in(percent_decode(text));
}

bool key_check::is_readable_in(std::string_view text) const {
  if (is_plain_in(text))
    return true;
  constexpr std::string_view basic = "Basic ";
  if (same_letters(text.substr(0, basic.size()), basic) &&
      is_plain_in(from_base64(trimmed(text.substr(basic.size())))))
    return true;
  if (!is_long())
    return false;
  std::string letters{text};
  std::replace(letters.begin(), letters.end(), '-', '+');
  std::replace(letters.begin(), letters.end(), '_', '/');
  return std::any_of(encoded_.begin(), encoded_.end(),
                     [&](const auto& each) { return letters.find(each) != std::string::npos; });
}

bool key_check::is_key(std::string_view candidate) const {
  // The length may become known, the content may not.
  return !open() && candidate.size() == key_.size() &&
         CRYPTO_memcmp(candidate.data(), key_.data(), key_.size()) == 0;
}

bool key_check::allows_header(std::string_view authorization, bool any_case) const {
  if (open())
    return true;
  const auto word = authorization.substr(0, scheme.size());
  return (any_case ? same_letters(word, scheme) : word == scheme) &&
         is_key(authorization.substr(scheme.size()));
}

bool key_check::allows_query(std::string_view query) const {
  if (open())
    return true;
  constexpr std::string_view name = "token=";
  while (!query.empty()) {
    const auto pair = query.substr(0, query.find('&'));
    if (pair.substr(0, name.size()) == name)
      return is_key(percent_decode(pair.substr(name.size())));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
  }
  return false;
}

} // namespace insula::http

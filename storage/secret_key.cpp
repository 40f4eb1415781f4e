#include "storage/secret_key.hpp"

#include "storage/private_file.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <openssl/crypto.h>
#include <optional>
#include <string_view>
#include <sys/random.h>

namespace insula::storage {

namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";
constexpr std::size_t digits_of_key = 2 * secret_box::key_bytes;

std::optional<unsigned> hex_value(char digit) {
  if (digit >= 'A' && digit <= 'F')
    digit = static_cast<char>(digit - 'A' + 'a');
  const auto found = hex_digits.find(digit);
  return found == std::string_view::npos ? std::nullopt
                                         : std::optional{static_cast<unsigned>(found)};
}

result<std::string> new_text() {
  std::array<unsigned char, secret_box::key_bytes> key{};
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
    return error{errc::internal, std::string{"getrandom: "} + std::strerror(errno)};
  std::string text;
  text.reserve(digits_of_key + 1); // No copy stays behind.
  for (const auto byte : key)
    text.append(1, hex_digits[byte >> 4]).append(1, hex_digits[byte & 15]);
  OPENSSL_cleanse(key.data(), key.size());
  text.append(1, '\n');
  return text;
}

result<secret_box> box_in(const std::string& path, std::string_view text) {
  const error malformed{errc::invalid_request,
                        path + ": expected 64 hex digits and a newline, as `openssl rand -hex 32` "
                               "prints them. Put the file back from a copy: what was sealed with "
                               "its key opens with no other"};
  if (text.size() != digits_of_key + 1 || text.back() != '\n')
    return malformed;
  std::string key(secret_box::key_bytes, '\0');
  for (std::size_t i = 0; i < key.size(); ++i) {
    const auto high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
    if (!high || !low) {
      wipe(key);
      return malformed;
    }
    key[i] = static_cast<char>(*high << 4 | *low);
  }
  auto box = secret_box::from_key(key);
  wipe(key);
  return box;
}

} // namespace

result<secret_box> open_secret_key(const std::string& path) {
  auto text = read_private_file(path, digits_of_key + 1);
  if (!text && text.reason().code == errc::not_found) {
    auto fresh = new_text();
    if (!fresh)
      return fresh.reason();
    const auto made = make_private_file(path, *fresh);
    wipe(*fresh);
    if (!made)
      return made.reason();
    text = read_private_file(path, digits_of_key + 1); // It may be somebody else's.
  }
  if (!text) {
    auto why = text.reason();
    if (why.code == errc::not_found) // A link that leads nowhere.
      why.code = errc::io_failed;
    return why;
  }
  auto box = box_in(path, *text);
  wipe(*text);
  return box;
}

} // namespace insula::storage

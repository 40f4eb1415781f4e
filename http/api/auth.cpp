#include "http/api/auth.hpp"

#include "base/base64.hpp"
#include "http/text/header_text.hpp"
#include "http/text/hmac.hpp"
#include "http/text/percent.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <openssl/evp.h>
#include <utility>

namespace insula::http {

namespace {
constexpr std::string_view scheme = "Bearer ";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// As far as it makes sense, in either alphabet.
std::string readable_base64(std::string_view text) {
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

/// A key, which never changes.
class key_check::known_key {
public:
  explicit known_key(std::string key);

  bool is_empty() const { return key_.empty(); }
  bool is_long() const { return key_.size() >= long_bytes; }
  bool equals(std::string_view candidate) const;
  bool is_readable_in(std::string_view text) const;
  std::string seal(std::string_view text) const;

private:
  bool is_plain_in(std::string_view text) const;

  const std::string key_;
  /// What base64 makes of a long key behind 0, 1 and 2 other bytes, without the letters that depend
  /// on a neighbour of the key.
  std::array<std::string, 3> encoded_;
};

struct key_check::place {
  std::mutex guard;
  std::shared_ptr<const known_key> now;
};

key_check::known_key::known_key(std::string key)
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

bool key_check::known_key::is_plain_in(std::string_view text) const {
  const auto ends_word = [&](std::size_t at) {
    return at >= text.size() || !is_letter_or_digit(text[at]);
  };
  for (auto at = text.find(key_); at != std::string_view::npos; at = text.find(key_, at + 1))
    if (is_long() || (ends_word(at - 1) && ends_word(at + key_.size())))
      return true;
  return false;
}

bool key_check::known_key::is_readable_in(std::string_view text) const {
  if (is_plain_in(text))
    return true;
  constexpr std::string_view basic = "Basic ";
  if (same_letters(text.substr(0, basic.size()), basic) &&
      is_plain_in(readable_base64(trimmed(text.substr(basic.size())))))
    return true;
  if (!is_long())
    return false;
  std::string letters{text};
  std::replace(letters.begin(), letters.end(), '-', '+');
  std::replace(letters.begin(), letters.end(), '_', '/');
  return std::any_of(encoded_.begin(), encoded_.end(),
                     [&](const auto& each) { return letters.find(each) != std::string::npos; });
}

bool key_check::known_key::equals(std::string_view candidate) const {
  // The length may become known, the content may not.
  return !is_empty() && is_same_secret(candidate, key_);
}

std::string key_check::known_key::seal(std::string_view text) const {
  return is_empty() ? std::string{} : hmac_sha256(key_, text);
}

key_check::key_check(std::string key)
    : place_(std::make_shared<place>()) {
  place_->now = std::make_shared<const known_key>(std::move(key));
}

std::shared_ptr<const key_check::known_key> key_check::now() const {
  const std::lock_guard hold{place_->guard};
  return place_->now;
}

void key_check::replace(std::string key) {
  auto next = std::make_shared<const known_key>(std::move(key));
  const std::lock_guard hold{place_->guard};
  if (next->is_empty() == place_->now->is_empty())
    place_->now = std::move(next);
}

bool key_check::open() const {
  return now()->is_empty();
}

std::string key_check::seal(std::string_view text) const {
  return now()->seal(text);
}

bool key_check::is_in(std::string_view text) const {
  const auto key = now();
  if (key->is_empty())
    return false;
  if (text.find('%') == std::string_view::npos)
    return key->is_readable_in(text);
  return key->is_readable_in(text) || key->is_readable_in(percent_decode(text));
}

bool key_check::is_in_address(std::string_view part) const {
  return now()->is_long() && is_in(part);
}

bool key_check::is_key(std::string_view candidate) const {
  return now()->equals(candidate);
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

#include "http/api/auth.hpp"

#include "base/base64.hpp"
#include "http/text/header_text.hpp"
#include "http/text/hmac.hpp"
#include "http/text/percent.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <openssl/evp.h>
#include <optional>
#include <unordered_map>
#include <utility>

namespace insula::http {

namespace {
constexpr std::string_view scheme = "Bearer ";

/// None: it is no header of the scheme.
std::optional<std::string_view> bearer_in(std::string_view authorization, bool any_case) {
  const auto word = authorization.substr(0, scheme.size());
  if (any_case ? !same_letters(word, scheme) : word != scheme)
    return std::nullopt;
  return authorization.substr(scheme.size());
}

/// None: there is no such word in the query.
std::optional<std::string> token_in(std::string_view query) {
  constexpr std::string_view name = "token=";
  while (!query.empty()) {
    const auto pair = query.substr(0, query.find('&'));
    if (pair.substr(0, name.size()) == name)
      return percent_decode(pair.substr(name.size()));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
  }
  return std::nullopt;
}

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

/// What the credentials of the Basic scheme say; empty: `text` has none.
std::string credentials_in(std::string_view text) {
  constexpr std::string_view basic = "Basic ";
  return same_letters(text.substr(0, basic.size()), basic)
           ? readable_base64(trimmed(text.substr(basic.size())))
           : std::string{};
}

/// Texts that are looked for together: one pass, however many there are.
class wanted_texts {
public:
  /// Of 8 bytes or more.
  void add(std::string text) {
    const auto beginning = beginning_of(text.data());
    texts_.emplace(beginning, std::move(text));
  }

  bool any_in(std::string_view text) const {
    if (texts_.empty())
      return false;
    for (; text.size() >= sizeof(std::uint64_t); text.remove_prefix(1)) {
      const auto [from, to] = texts_.equal_range(beginning_of(text.data()));
      if (std::any_of(from, to, [&](const auto& each) { return text.starts_with(each.second); }))
        return true;
    }
    return false;
  }

private:
  static std::uint64_t beginning_of(const char* text) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text, sizeof bytes);
    return bytes;
  }

  std::unordered_multimap<std::uint64_t, std::string> texts_; ///< By their first bytes.
};
} // namespace

/// A key, which never changes.
class key_check::known_key {
public:
  explicit known_key(std::string key)
      : key_(std::move(key)) {}

  bool is_empty() const { return key_.empty(); }
  bool is_long() const { return key_.size() >= long_bytes; }
  bool equals(std::string_view candidate) const;
  bool is_word_in(std::string_view text) const;
  std::string seal(std::string_view text) const;

  const std::string& plain() const { return key_; }
  /// What base64 makes of it behind 0, 1 and 2 other bytes, without the letters that depend on a
  /// neighbour of the key.
  std::array<std::string, 3> encoded() const;

private:
  const std::string key_;
};

struct key_check::known_keys {
  struct named_one {
    shared_named_key is;
    known_key secret;
  };

  known_keys(std::string key, std::vector<named_key> others)
      : main(std::move(key)) {
    for (auto& each : others) {
      auto is = std::make_shared<const named_key>(std::move(each));
      named.push_back({is, known_key{is->secret}});
    }
    note(main);
    for (const auto& each : named)
      note(each.secret);
  }

  void note(const known_key& key) {
    if (key.is_empty())
      return;
    if (!key.is_long())
      return short_ones.push_back(key);
    plain.add(key.plain());
    for (auto& each : key.encoded())
      encoded.add(std::move(each));
  }

  bool are_in(std::string_view text, bool long_ones) const {
    const auto credentials = credentials_in(text);
    if (plain.any_in(text) || plain.any_in(credentials))
      return true;
    if (!long_ones && std::any_of(short_ones.begin(), short_ones.end(), [&](const known_key& each) {
          return each.is_word_in(text) || each.is_word_in(credentials);
        }))
      return true;
    if (text.size() < long_bytes) // Base64 is longer.
      return false;
    std::string letters{text};
    std::replace(letters.begin(), letters.end(), '-', '+');
    std::replace(letters.begin(), letters.end(), '_', '/');
    return encoded.any_in(letters);
  }

  const known_key main;
  std::vector<named_one> named;

  // ---- To find them in other texts

  std::vector<known_key> short_ones;
  wanted_texts plain, encoded; ///< Of the long ones.
};

struct key_check::place {
  std::mutex guard;
  std::shared_ptr<const known_keys> now;
};

bool is_among(const std::vector<std::string>& list, std::string_view which) {
  return list.empty() || std::find(list.begin(), list.end(), which) != list.end();
}

bool named_key::may_use(std::string_view api) const {
  return is_among(apis, api);
}

bool named_key::may_reach_team(std::string_view team) const {
  return is_among(teams, team);
}

bool named_key::may_reach_project(std::string_view project) const {
  return is_among(projects, project);
}

std::array<std::string, 3> key_check::known_key::encoded() const {
  std::array<std::string, 3> all;
  for (std::size_t before = 0; before < all.size(); ++before) {
    const auto whole = base64(std::string(before, 'x') + key_);
    const auto first = (before * 8 + 5) / 6;
    const auto last = (before + key_.size()) * 8 / 6;
    all[before] = whole.substr(first, last - first);
  }
  return all;
}

bool key_check::known_key::is_word_in(std::string_view text) const {
  const auto ends_word = [&](std::size_t at) {
    return at >= text.size() || !is_letter_or_digit(text[at]);
  };
  for (auto at = text.find(key_); at != std::string_view::npos; at = text.find(key_, at + 1))
    if (ends_word(at - 1) && ends_word(at + key_.size()))
      return true;
  return false;
}

bool key_check::known_key::equals(std::string_view candidate) const {
  // The length may become known, the content may not.
  return !is_empty() && is_same_secret(candidate, key_);
}

std::string key_check::known_key::seal(std::string_view text) const {
  return is_empty() ? std::string{} : hmac_sha256(key_, text);
}

key_check::key_check(std::string key, std::vector<named_key> named)
    : place_(std::make_shared<place>()) {
  place_->now = std::make_shared<const known_keys>(std::move(key), std::move(named));
}

std::shared_ptr<const key_check::known_keys> key_check::now() const {
  const std::lock_guard hold{place_->guard};
  return place_->now;
}

void key_check::replace(std::string key, std::vector<named_key> named) {
  auto next = std::make_shared<const known_keys>(std::move(key), std::move(named));
  const std::lock_guard hold{place_->guard};
  if (next->main.is_empty() == place_->now->main.is_empty())
    place_->now = std::move(next);
}

bool key_check::open() const {
  return now()->main.is_empty();
}

shared_named_key key_check::named(std::string_view candidate) const {
  const auto keys = now();
  shared_named_key found;
  for (const auto& each : keys->named) // All of them: the time tells nothing.
    if (each.secret.equals(candidate))
      found = each.is;
  return found;
}

shared_named_key key_check::named_in_header(std::string_view authorization, bool any_case) const {
  const auto shown = bearer_in(authorization, any_case);
  return shown ? named(*shown) : nullptr;
}

shared_named_key key_check::named_in_query(std::string_view query) const {
  const auto shown = token_in(query);
  return shown ? named(*shown) : nullptr;
}

shared_named_key key_check::by_name(std::string_view name) const {
  const auto keys = now();
  for (const auto& each : keys->named)
    if (each.is->name == name)
      return each.is;
  return nullptr;
}

std::string key_check::seal(std::string_view text, std::string_view name) const {
  const auto keys = now();
  if (name.empty())
    return keys->main.seal(text);
  for (const auto& each : keys->named)
    if (each.is->name == name)
      return each.secret.seal(text);
  return {};
}

bool key_check::is_in(std::string_view text) const {
  const auto keys = now();
  return keys->are_in(text, false) ||
         (text.find('%') != std::string_view::npos && keys->are_in(percent_decode(text), false));
}

bool key_check::is_in_address(std::string_view part) const {
  const auto keys = now();
  return keys->are_in(part, true) ||
         (part.find('%') != std::string_view::npos && keys->are_in(percent_decode(part), true));
}

bool key_check::is_key(std::string_view candidate) const {
  return now()->main.equals(candidate);
}

bool key_check::allows_header(std::string_view authorization, bool any_case) const {
  const auto shown = bearer_in(authorization, any_case);
  return open() || (shown && is_key(*shown));
}

bool key_check::allows_query(std::string_view query) const {
  const auto shown = token_in(query);
  return open() || (shown && is_key(*shown));
}

} // namespace insula::http

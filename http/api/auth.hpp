#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace insula::http {

/// Who may call: whoever knows the key; everybody, if there is none. Comparisons take the same time
/// wherever the first difference is. Copies share the key. Any thread.
class key_check {
public:
  explicit key_check(std::string key);

  bool open() const;

  /// From now on this one and its copies know `key` alone. Whether there is a key stays as it is.
  void replace(std::string key);

  /// `Bearer <key>`, exactly one blank; the word in any letter case if `any_case`.
  bool allows_header(std::string_view authorization, bool any_case) const;

  /// `token=<key>` in a query string.
  bool allows_query(std::string_view query) const;

  /// False where there is no key.
  bool is_key(std::string_view candidate) const;

  /// The HMAC-SHA-256 of `text` with the key, 32 bytes. Each purpose begins its texts in its own
  /// way. Empty where there is no key.
  std::string seal(std::string_view text) const;

  /// Whether `text` carries the key to any reader of `text`: as it is, percent-encoded, in base64
  /// of either alphabet, or in credentials of the Basic scheme. A short key may also be a part of
  /// some longer word, so a short key counts as a whole word only. False where there is no key. Not
  /// for admission: the time tells where the text differs.
  bool is_in(std::string_view text) const;
  /// The same of a path or a host, of which nothing can be left out: only a long key counts.
  bool is_in_address(std::string_view part) const;

  /// From here on a key is long: no other text has one in it by chance.
  static constexpr std::size_t long_bytes = 16;

private:
  class known_key;
  struct place;
  std::shared_ptr<const known_key> now() const;

  std::shared_ptr<place> place_;
};

} // namespace insula::http

#pragma once

#include <array>
#include <string>
#include <string_view>

namespace insula::http {

/// Who may call: whoever knows the key; everybody, if there is none. Comparisons take the same time
/// wherever the first difference is. Any thread.
class key_check {
public:
  explicit key_check(std::string key);

  bool open() const { return key_.empty(); }

  /// `Bearer <key>`, exactly one blank; the word in any letter case if `any_case`.
  bool allows_header(std::string_view authorization, bool any_case) const;

  /// `token=<key>` in a query string.
  bool allows_query(std::string_view query) const;

  /// False where there is no key.
  bool is_key(std::string_view candidate) const;

  /// Whether `text` carries the key to any reader of `text`: as it is, percent-encoded, in base64
  /// of either alphabet, or in credentials of the Basic scheme. A short key may also be a part of
  /// some longer word, so a short key counts as a whole word only. False where there is no key. Not
  /// for admission: the time tells where the text differs.
  bool is_in(std::string_view text) const;
  /// The same of a path or a host, of which nothing can be left out: only a long key counts.
  bool is_in_address(std::string_view part) const { return is_long() && is_in(part); }

  /// From here on a key is long: no other text has one in it by chance.
  static constexpr std::size_t long_bytes = 16;

private:
  bool is_long() const { return key_.size() >= long_bytes; }
  bool is_plain_in(std::string_view text) const;
  bool is_readable_in(std::string_view text) const;

  std::string key_;
  /// What base64 makes of a long key behind 0, 1 and 2 other bytes, without the letters that depend
  /// on a neighbour of the key.
  std::array<std::string, 3> encoded_;
};

} // namespace insula::http

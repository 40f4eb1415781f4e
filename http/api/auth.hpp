#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// Of a list that, where it is empty, has everything in it.
bool is_among(const std::vector<std::string>& list, std::string_view which);

/// A key beside the main one, which opens a part of the node.
struct named_key {
  std::string name;
  std::string secret;             ///< What clients send. Not empty, and no other key's.
  std::vector<std::string> apis;  ///< By public_api::name(). Empty: each that has such keys.
  std::vector<std::string> teams; ///< Of the Vercel API. Empty: all, as with the next.
  std::vector<std::string> projects;

  bool may_use(std::string_view api) const;
  bool may_reach_team(std::string_view team) const;
  bool may_reach_project(std::string_view project) const;
};
using shared_named_key = std::shared_ptr<const named_key>;

/// Who may call: the clients that know the main key, or one of the named ones; everybody, if there
/// is no main key. Comparisons take the same time wherever the first difference is. Copies share
/// the keys. Any thread.
class key_check {
public:
  /// `named`: none where there is no main key.
  explicit key_check(std::string key, std::vector<named_key> named = {});

  /// There is no main key.
  bool open() const;

  /// From now on this one and its copies know these keys alone. Whether there is a main key stays
  /// as it is.
  void replace(std::string key, std::vector<named_key> named = {});

  // ---- Named keys. Null: it is none of them.

  shared_named_key named(std::string_view candidate) const;
  shared_named_key named_in_header(std::string_view authorization, bool any_case) const;
  shared_named_key named_in_query(std::string_view query) const;
  shared_named_key by_name(std::string_view name) const;

  // ---- The main key

  /// `Bearer <key>`, exactly one blank; the word in any letter case if `any_case`.
  bool allows_header(std::string_view authorization, bool any_case) const;

  /// `token=<key>` in a query string.
  bool allows_query(std::string_view query) const;

  /// False where there is no key.
  bool is_key(std::string_view candidate) const;

  /// The HMAC-SHA-256 of `text` with the key, 32 bytes. Each purpose begins its texts in its own
  /// way. `name`: of a named key; empty: the main one. Empty where there is no such key.
  std::string seal(std::string_view text, std::string_view name = {}) const;

  // ---- All of them

  /// Whether `text` carries a key to any reader of `text`: as it is, percent-encoded, in base64
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
  struct known_keys;
  struct place;
  std::shared_ptr<const known_keys> now() const;

  std::shared_ptr<place> place_;
};

} // namespace insula::http

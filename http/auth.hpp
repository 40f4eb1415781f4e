#pragma once

#include <string>
#include <string_view>

namespace insula::http {

/// Who may call: whoever knows the key; everybody, if there is none. Comparisons take the same time
/// wherever the first difference is. Any thread.
class key_check {
public:
  explicit key_check(std::string key)
      : key_(std::move(key)) {}

  bool open() const { return key_.empty(); }

  /// `Bearer <key>`, exactly one blank; the word in any letter case if `any_case`.
  bool allows_header(std::string_view authorization, bool any_case) const;

  /// `token=<key>` in a query string.
  bool allows_query(std::string_view query) const;

  /// False where there is no key.
  bool is_key(std::string_view candidate) const;

private:
  std::string key_;
};

} // namespace insula::http

#pragma once

#include "base/error.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Tokens about sandboxes that anybody can verify: JSON Web Tokens, signed with RSA keys. This
/// server publishes the public halves.
namespace insula::http::oidc {

/// A new key is published for so long before it signs, so that verifiers and the other nodes of a
/// cluster know it by then.
inline constexpr std::chrono::seconds publish_ahead{600};

/// The RSA keys that sign tokens, the oldest first. One of them is not retired: the last one. A
/// value; its copies share the keys, and the private parts are overwritten with the last copy.
///
/// Threads: any.
class key_set {
public:
  static constexpr std::size_t most_keys = 32;
  static constexpr std::size_t most_bytes = 256u << 10; ///< Of a text.

  /// One new key, which signs at once. Takes about a tenth of a second. Errors: internal.
  static result<key_set> make(std::int64_t now_s);

  /// What text() has written. Errors: invalid_request, saying what is wrong with the text, and
  /// nothing that is in it.
  static result<key_set> read(std::string_view text);

  /// The private keys: {"keys":[{"kid":"…","created":…,"retired":…,"pem":"…"}]}, times in
  /// seconds since 1970. `retired` is when a key signs no more; the last one has none.
  /// Errors: internal.
  result<std::string> text() const;

  /// These and a new one, which signs publish_ahead later; the one before it is retired then. Keys
  /// that are retired for `keep` or longer are left out. Takes about a tenth of a second. Errors:
  /// limit_reached; internal.
  result<key_set> rotated(std::int64_t now_s, std::chrono::seconds keep) const;

  struct line {
    std::string kid; ///< The key's thumbprint (RFC 7638).
    std::int64_t created_s;
    std::optional<std::int64_t> retired_s; ///< None: the last one.
    bool signs;                            ///< At the time that was asked about.
  };
  std::vector<line> list(std::int64_t now_s) const;

  /// {"keys":[…]} (RFC 7517), without those that are retired for `keep` or longer.
  std::string published(std::int64_t now_s, std::chrono::seconds keep) const;

  struct signature {
    std::string text; ///< What was signed: header, point, `payload`, both in base64url.
    std::string bytes;
  };
  /// RS256, by the key that signs at that time. Errors: internal.
  result<signature> sign(std::string_view payload, std::int64_t now_s) const;

  /// Both have the same keys, with the same times.
  bool operator==(const key_set& other) const;

private:
  struct key;
  using shared_key = std::shared_ptr<const key>;
  struct kept_key {
    shared_key is;
    std::int64_t created_s = 0;
    std::optional<std::int64_t> retired_s = {};

    bool operator==(const kept_key& other) const;
  };

  const kept_key& signer(std::int64_t now_s) const;

  std::vector<kept_key> keys_; ///< At least one.
};

} // namespace insula::http::oidc

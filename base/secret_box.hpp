#pragma once

#include "base/error.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace insula {

/// Overwrites the bytes of a secret that is not needed any more, and leaves the text empty. Copies
/// of it, and what it was before it grew, are elsewhere.
void wipe(std::string& secret);

/// Seals secrets with one key, so that they can be kept where others may read: AES-256-GCM, with a
/// random nonce of 96 bits for each text. A sealed text tells its length and nothing else.
///
/// A purpose says where a sealed text belongs, such as a sandbox's id and the name of a field. A
/// text opens for the purpose that it was sealed for and for no other, so a sealed text that is
/// copied to another place is of no use there. One key is good for 2^32 texts (NIST SP
/// 800-38D, 8.3).
///
/// A sealed text is the digit 1, which is the version, and base64url of nonce, text and tag.
///
/// Threads: any; a moved-from box is only destroyed or assigned to.
class secret_box {
public:
  static constexpr std::size_t key_bytes = 32;
  static constexpr std::size_t most_bytes = 1u << 20; ///< Of a text that is sealed.

  /// Errors: invalid_request, if `key` has not 32 bytes.
  static result<secret_box> from_key(std::string_view key);

  /// Errors: limit_reached, for a text with more than most_bytes; internal. No error has any of the
  /// text.
  result<std::string> seal(std::string_view plain, std::string_view purpose) const;

  /// Errors: io_failed, since what is sealed comes from a store of the server's own: the text is
  /// damaged, of another version, or was sealed with another key or for another purpose. No error
  /// has any of the text.
  result<std::string> open(std::string_view sealed, std::string_view purpose) const;

  /// 16 hex digits by which two people can tell that two boxes have the same key. They tell nothing
  /// else of the key.
  const std::string& key_id() const { return key_id_; }

private:
  using key = std::array<unsigned char, key_bytes>;
  struct cleansed {
    void operator()(key* used) const;
  };

  secret_box(std::unique_ptr<key, cleansed> with, std::string id)
      : key_(std::move(with))
      , key_id_(std::move(id)) {}

  std::unique_ptr<key, cleansed> key_;
  std::string key_id_;
};

} // namespace insula

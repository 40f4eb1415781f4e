#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace insula::storage::images {

/// Is it "sha256:" or "sha512:" with so many lower-case hexadecimal digits?
bool is_digest(std::string_view text);

/// What a stream of bytes is called by its content.
class hasher {
public:
  /// `like`: a digest, whose algorithm is taken. One that is none stands for sha256.
  explicit hasher(std::string_view like = "sha256:");
  ~hasher();
  hasher(hasher&&) noexcept;
  hasher& operator=(hasher&&) noexcept;

  void add(const void* bytes, std::size_t count);
  /// "sha256:…", once.
  std::string digest();

private:
  struct state;
  std::unique_ptr<state> state_;
};

std::string digest_of(std::string_view bytes, std::string_view like = "sha256:");

} // namespace insula::storage::images

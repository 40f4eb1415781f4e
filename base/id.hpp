#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace insula {

/// The id of a sandbox, the same through every API: 1 to 128 characters of `[a-z2-7]`. Those that
/// Insula issues are 16 random bytes in lower-case base32 without padding (RFC 4648), 26
/// characters.
class sandbox_id {
public:
  static constexpr std::size_t max_length = 128;

  /// Checked when parsed; every sandbox_id that exists is well formed.
  static std::optional<sandbox_id> parse(std::string_view text);

  /// A fresh one, from the kernel's random source.
  static sandbox_id generate();

  const std::string& str() const noexcept { return text_; }
  auto operator<=>(const sandbox_id&) const = default;

private:
  explicit sandbox_id(std::string text)
      : text_(std::move(text)) {}
  std::string text_;
};

/// RFC 4648 base32 in lower case, without padding.
std::string base32(const unsigned char* bytes, std::size_t count);

} // namespace insula

template <>
struct std::hash<insula::sandbox_id> {
  std::size_t operator()(const insula::sandbox_id& id) const noexcept {
    return std::hash<std::string>{}(id.str());
  }
};

#include "base/id.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <sys/random.h>

namespace insula {

std::string base32(const unsigned char* bytes, std::size_t count) {
  static constexpr char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
  std::string text;
  text.reserve((count * 8 + 4) / 5);
  std::uint32_t window = 0;
  int bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    window = window << 8 | bytes[i];
    for (bits += 8; bits >= 5; bits -= 5)
      text += alphabet[window >> (bits - 5) & 31];
  }
  if (bits > 0)
    text += alphabet[window << (5 - bits) & 31];
  return text;
}

std::optional<sandbox_id> sandbox_id::parse(std::string_view text) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '2' && c <= '7'); };
  if (text.empty() || text.size() > max_length || !std::all_of(text.begin(), text.end(), allowed))
    return std::nullopt;
  return sandbox_id{std::string{text}};
}

sandbox_id sandbox_id::generate() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("getrandom() gave no bytes");
  return sandbox_id{base32(bytes.data(), bytes.size())};
}

} // namespace insula

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace insula {

/// What programs in a sandbox may gain beyond what they are started with. none: no rights at all.
/// sudo: programs that change the user work, so its users may become its root.
enum class privileges : std::uint8_t { none, sudo };

/// As configurations, records and clients say them.
inline constexpr std::array<std::string_view, 2> privileges_words{"none", "sudo"};
constexpr std::string_view word_of(privileges gains) {
  return privileges_words[static_cast<std::size_t>(gains)];
}
constexpr std::optional<privileges> privileges_of(std::string_view word) {
  for (const auto each : {privileges::none, privileges::sudo})
    if (word == word_of(each))
      return each;
  return std::nullopt;
}

} // namespace insula

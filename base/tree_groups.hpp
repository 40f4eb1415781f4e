#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// Groups of entries of a tree. What a group has lies in pieces of its own, so that a change of one
/// file changes the pieces of its group, and no other.
namespace insula {

/// Of so many small files one begins a group: always the same ones.
inline constexpr std::uint64_t files_per_group = 256;

constexpr bool begins_group(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325; // FNV-1a.
  for (const char each : name)
    hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  return (hash ^ hash >> 32) % files_per_group == 0;
}

/// Says of a group of a disk what its files are: names, inodes, sizes and times. As long as the
/// disk is a copy of an older one, the same key stands for the same content.
struct group_key {
  std::uint64_t words[2];

  auto operator<=>(const group_key&) const = default; // NOLINT(modernize-use-nullptr)
};

/// Makes the key of what is added, one after the other.
class group_hash {
public:
  constexpr group_hash& add(std::uint64_t number) {
    key_.words[0] = mixed(key_.words[0] ^ number, 0x9e3779b97f4a7c15);
    key_.words[1] = mixed(key_.words[1] + number, 0xc2b2ae3d27d4eb4f);
    return *this;
  }
  constexpr group_hash& add(std::string_view text) {
    add(text.size());
    for (std::size_t at = 0; at < text.size(); at += 8) {
      std::uint64_t word = 0;
      for (const char each : text.substr(at, 8))
        word = word << 8 | static_cast<unsigned char>(each);
      add(word);
    }
    return *this;
  }
  constexpr group_key key() const { return key_; }

private:
  static constexpr std::uint64_t mixed(std::uint64_t value, std::uint64_t by) {
    value *= by;
    value ^= value >> 29;
    value *= 0xbf58476d1ce4e5b9;
    return value ^ value >> 32;
  }

  group_key key_{{0x243f6a8885a308d3, 0x13198a2e03707344}};
};

} // namespace insula

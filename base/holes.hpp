#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

/// Zeros that need not be written, since a file that is made long enough has them.
namespace insula {

/// A hole of a file begins and ends at multiples of this.
inline constexpr std::size_t hole_block = 4096;

/// Calls `take(offset, bytes)` for all of `bytes`, which are at `offset` of a file, but blocks of
/// zeros; each time with at most `most`, which is at least a block. Ends when that answers false.
template <class Take>
bool without_holes(std::uint64_t offset, std::string_view bytes, std::size_t most, Take take) {
  const auto flush = [&](std::size_t count) {
    const auto some = bytes.substr(0, count);
    bytes.remove_prefix(count);
    const auto at = offset;
    offset += count;
    return some.empty() || take(at, some);
  };
  std::size_t kept = 0; // Of the beginning of `bytes`.
  while (kept < bytes.size()) {
    const auto room = hole_block - static_cast<std::size_t>((offset + kept) % hole_block);
    const auto block = bytes.substr(kept, room);
    const bool zeros = block.find_first_not_of('\0') == block.npos;
    if (zeros || kept + block.size() > most) {
      if (!flush(std::exchange(kept, 0)))
        return false;
    }
    if (zeros) {
      bytes.remove_prefix(block.size());
      offset += block.size();
    } else {
      kept += block.size();
    }
  }
  return flush(kept);
}

} // namespace insula

#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace insula {

/// "2GiB": as cluster.yaml spells it, in the largest unit that says it exactly.
inline std::string size_text(std::uint64_t bytes) {
  for (const auto& [shift, unit] : {std::pair{30, "GiB"}, {20, "MiB"}, {10, "KiB"}})
    if (bytes % (std::uint64_t{1} << shift) == 0)
      return std::to_string(bytes >> shift) + unit;
  return std::to_string(bytes);
}

} // namespace insula

#pragma once

#include "base/limits.hpp"

namespace insula::limits {

inline constexpr std::uint32_t largest_user_id = 65'535;
inline constexpr std::size_t places_kept_of = 8;
inline constexpr std::size_t least_strangers_of_network = 64;
inline constexpr std::size_t wrong_networks = 1024;

} // namespace insula::limits

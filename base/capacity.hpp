#pragma once

namespace insula {

/// What errc::capacity_exceeded says where it is not the number of sandboxes that is used up.
inline constexpr const char* memory_is_short = "the node's memory is nearly used up";

} // namespace insula

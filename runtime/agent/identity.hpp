#pragma once

#include <cstdint>

namespace insula::runtime::agent {

/// Users and groups that a sandbox has: 0 to 65,535.
inline constexpr std::uint32_t ids_of_sandbox = 65'536;

/// This process becomes that user, with that group and no other. False: it must not go on, since it
/// may have changed in part; errno says why. EINVAL for an id that the sandbox has not got: the
/// kernel takes -1 for "as it is", which is root.
bool become_user(std::uint32_t uid, std::uint32_t gid);

} // namespace insula::runtime::agent

#pragma once

#include "actors/sandbox/core.hpp"

#include <optional>
#include <string>
#include <string_view>

/// The profile of a sandbox in its record. A record without one has the node's.
namespace insula::actors::inside_sandbox {

/// In the record.
inline constexpr std::string_view profile_key = "profile";

/// NUL stands between its lines.
std::string write_profile(const sandbox_profile& what);
/// Errors: launch_failed: a later version has written it.
result<sandbox_profile> read_profile(std::string_view text);
/// None: a sandbox may have it. Errors: invalid_request.
std::optional<error> malformed_profile(const sandbox_profile& what);

/// As the record says it. Errors: those of read_profile().
result<sandbox_profile> recorded_profile(const core& of);

// Of a sandbox that has been started.

runtime::sandbox_user user_of(const core& of);
/// Empty: neither its profile nor its image has one.
std::string home_of(const core& of);

} // namespace insula::actors::inside_sandbox

#pragma once

#include "actors/sandbox/core.hpp"

#include <optional>
#include <string>
#include <string_view>

/// The profile of a sandbox in its record. A record without one has the node's, but for the
/// privileges: what a sandbox may gain is settled when it comes to be, and where its record says
/// nothing of it, that is nothing.
namespace insula::actors::inside_sandbox {

/// In the record.
inline constexpr std::string_view profile_key = "profile";

/// NUL stands between its lines.
std::string write_profile(const sandbox_profile& what);
/// Of one that has the node's in all but this.
std::string write_privileges(privileges gains);
/// `of_node`: what holds where the text says nothing. Errors: launch_failed: a later version has
/// written it.
result<sandbox_profile> read_profile(std::string_view text, sandbox_profile of_node);
/// None: a sandbox may have it. Errors: invalid_request.
std::optional<error> malformed_profile(const sandbox_profile& what);

/// As the record says it; of one that does not exist yet, as it would come to be. Errors: those of
/// read_profile().
result<sandbox_profile> recorded_profile(const core& of);
/// None: this node lets a sandbox have them. Errors: forbidden.
std::optional<error> objection_to(privileges gains, const sandbox_options& of_node);

// Of a sandbox that has been started.

runtime::sandbox_user user_of(const core& of);
/// Empty: neither its profile nor its image has one.
std::string home_of(const core& of);

} // namespace insula::actors::inside_sandbox

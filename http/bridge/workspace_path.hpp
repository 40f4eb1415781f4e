#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace insula::http::bridge {

/// What clients of this API read and write files below; archives are of all of it.
inline constexpr std::string_view workspace = "/workspace";

/// `path` as text only, links not looked at: absolute as it is, otherwise below /workspace; without
/// empty, `.` and `..` segments. None if that is neither /workspace nor below it.
std::optional<std::string> resolve_in_workspace(std::string_view path);

/// The file that a URL names: `tail` is what follows `/file/`, still encoded. Each segment between
/// slashes is decoded once; a slash comes in front.
std::string decode_file_path(std::string_view tail);

} // namespace insula::http::bridge

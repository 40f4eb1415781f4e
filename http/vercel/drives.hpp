#pragma once

#include "actors/protocol/messages.hpp"
#include "http/vercel/failures.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Drives of this API: each is a sandbox of its project that no other list has, in which nothing
/// runs, and whose files other sandboxes of the project have as a directory.
namespace insula::http::vercel {

/// The name of the metadata that such a sandbox has.
inline constexpr const char* drive_metadata_api = "verceldrive";

struct drive_settings {
  std::string project, name, region;
  std::uint64_t max_bytes = 0;
  std::int64_t updated_ms = 0;
  std::string parent = {}, root = {}; ///< Ids of the drives it was forked from. Empty: it was not.
};

/// Of a request to get or make one. None: it is well formed. `most`: the usual size, and the
/// largest.
std::optional<refusal> read_drive_request(std::string_view body, drive_settings& into,
                                          std::uint64_t most);

/// Of a request to fork one: the name of the new one.
std::optional<refusal> read_drive_fork(std::string_view body, std::string& name);

/// As metadata, and back. None: it is no drive.
std::string text_of(const drive_settings& of);
std::optional<drive_settings> drive_settings_of(const api_metadata& all);

/// The group of the drives of a project, which is the name of no project.
std::string group_of_drives(std::string_view project);
/// None: it is no drive.
std::optional<grouped_sandbox> drive_group_of(const api_metadata& all);
std::optional<sandbox_caption> drive_caption_of(const api_metadata& all);

/// What makes it. It has all its settings.
define_sandbox definition_of(const drive_settings& of);

} // namespace insula::http::vercel

#pragma once

#include "actors/protocol/messages.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What records have of drives: of a sandbox that has some, and of a drive itself.
namespace insula::actors {

std::string text_of(const std::vector<drive_mount>& all);
/// Those that can be understood: a later version may have written others.
std::vector<drive_mount> read_drives(std::string_view text);

std::string text_of(const drive_use& by);
/// None: no sandbox has it.
std::optional<drive_use> read_drive_use(std::string_view text);

} // namespace insula::actors

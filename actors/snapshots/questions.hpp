#pragma once

#include "actors/protocol/snapshots.hpp"
#include "base/error.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <variant>

/// What one node asks another about a snapshot whose object lives there, as text. A word that is
/// not known is skipped, so nodes of two versions understand each other.
namespace insula::actors::snapshots {

using question = std::variant<find_snapshot, hold_snapshot, release_snapshot, delete_snapshot>;

std::string text_of(const question& asked);
/// None: the text makes no sense.
std::optional<question> read_question(std::string_view text);
const std::string& snapshot_of(const question& asked);

std::string text_of(const snapshot_description& told);
/// Errors: internal (the text makes no sense).
result<snapshot_description> read_description(std::string_view text);

} // namespace insula::actors::snapshots

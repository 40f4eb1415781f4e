#pragma once

#include <string_view>

namespace insula {

/// What an error (store_failed) says first if a sandbox's files cannot be had from their snapshot.
/// Whoever has asked for the sandbox is told all of it; other errors of that code are of the node's
/// own disk, and their words are for its log.
inline constexpr std::string_view files_unavailable = "the sandbox's files cannot be had: ";

} // namespace insula

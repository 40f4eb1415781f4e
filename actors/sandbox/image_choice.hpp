#pragma once

#include "actors/sandbox/core.hpp"

#include <optional>
#include <string>

namespace insula::actors::inside_sandbox {

/// What a sandbox starts from.
struct image_choice {
  std::string name;   ///< On this node, or a reference that nobody has brought here yet.
  std::string source; ///< REPOSITORY@DIGEST of what it has started from before. Empty: not known.
};

/// Of a sandbox whose record is loaded: it starts from the image that it was made from, also when
/// new ones start from another. One that is new starts from what its first request asks for, or
/// else from the node's default.
image_choice image_of(const core& of, const request_context& first);

/// Is it the very image, and no later one of that name?
bool has_bytes_of(const image_choice& wanted, const sandbox_image& image);

/// For the record: empty, if the image is from no registry.
std::string source_of(const sandbox_image& image);

/// None: the sandbox is, or will be, what a request with these words asks for. Empty: it asks for
/// none.
std::optional<error> image_mismatch(const core& of, const std::string& asked);

} // namespace insula::actors::inside_sandbox

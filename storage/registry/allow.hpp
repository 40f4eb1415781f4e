#pragma once

#include "base/error.hpp"
#include "storage/registry/reference.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace insula::storage::registry {

/// A pattern is over whole references, such as docker.io/library/debian:12 or
/// ghcr.io/acme/**@sha256:*: '*' stands for anything but a '/', '**' for anything. One that says
/// neither a tag nor a digest takes all of them. Errors: invalid_request.
result<void> check_pattern(std::string_view pattern);

/// Is there a pattern that takes the image? Of a reference with a tag and a digest, the digest is
/// what is fetched, and so what is compared. None allow nothing.
bool allows(const std::vector<std::string>& patterns, const image_reference& image);

} // namespace insula::storage::registry

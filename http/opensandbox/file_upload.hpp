#pragma once

#include "http/opensandbox/execd_route.hpp"

#include <memory>

namespace insula::http::opensandbox {

/// What an upload may have in all: a sandbox's disk ends it before that.
inline constexpr std::uint64_t most_uploaded = 64ull << 30;

/// Takes a body of parts, each file after what is said of it, and writes one file after the other
/// as it comes. Those before a failure are in place.
std::shared_ptr<body_sink> make_file_upload(const execd_target& target,
                                            const matched_request& what);

} // namespace insula::http::opensandbox

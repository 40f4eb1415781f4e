#pragma once

#include "http/transport/exchange.hpp"
#include "http/vercel/session_call.hpp"

#include <memory>

namespace insula::http::vercel {

/// Unpacks a body, a gzip-compressed tar archive, below the directory that the field x-cwd names,
/// while it comes: the sandbox's own tar reads it and sets the pace. What is unpacked belongs to
/// the user, with the permissions that it has in the archive. Of a body that is cut off, what has
/// come is there.
std::shared_ptr<body_sink> make_archive_upload(const std::shared_ptr<const session_call>& call);

} // namespace insula::http::vercel

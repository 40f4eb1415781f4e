#pragma once

#include "http/sandboxes/terminal_stream.hpp"

#include <memory>

namespace insula::http::vercel {

/// A terminal that its client's first frame starts. Frames of text are JSON: `start` and `resize`
/// from the client, `exit` to it. All others are bytes.
std::shared_ptr<const terminal_words> interactive_words();

} // namespace insula::http::vercel

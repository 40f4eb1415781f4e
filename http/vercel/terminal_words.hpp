#pragma once

#include "http/sandboxes/terminal_stream.hpp"

#include <memory>
#include <string_view>

namespace insula::http::vercel {

/// A terminal that its client's first frame starts. Frames of text are JSON: `start` and `resize`
/// from the client, `exit` to it. All others are bytes. `directory`: of the session; a literal.
std::shared_ptr<const terminal_words> interactive_words(std::string_view directory);

} // namespace insula::http::vercel

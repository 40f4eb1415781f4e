#pragma once

#include "http/sandboxes/terminal_stream.hpp"

#include <memory>

namespace insula::http::bridge {

/// The bridge's: binary frames are what is typed and printed, and the rest is JSON.
std::shared_ptr<const terminal_words> bridge_terminal_words();

} // namespace insula::http::bridge

#pragma once

#include "http/sandboxes/terminal_stream.hpp"

#include <memory>
#include <string>

namespace insula::http::opensandbox {

/// execd's: binary frames begin with a mark that says what they are, and the rest is JSON. `id`:
/// the terminal's.
std::shared_ptr<const terminal_words> execd_terminal_words(std::string id);

} // namespace insula::http::opensandbox

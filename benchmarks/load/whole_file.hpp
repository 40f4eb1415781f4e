#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <string>

namespace insula::load {

/// The file under this name is the text, or stays what it was: it is written beside and renamed.
/// What is no ordinary file, such as /dev/stdout, is written to as it is. Errors: io_failed.
result<void> write_whole(const std::string& path, const std::string& text);

/// Errors: io_failed; invalid_request if it has more than `most` bytes.
result<std::string> read_whole(const std::string& path, std::size_t most);

} // namespace insula::load

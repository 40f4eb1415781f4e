#pragma once

#include "base/secret_box.hpp"

#include <string>

namespace insula::storage {

/// The box with the key in this file: 64 hex digits and a newline. Where there is no file it is
/// made, with a random key, for all later starts; of two that start at once, both have the same
/// key. A file that is there is never changed. Waits for the disk: for starts. Errors: as
/// read_private_file() and make_private_file(); invalid_request for a file that has something else
/// in it.
result<secret_box> open_secret_key(const std::string& path);

} // namespace insula::storage

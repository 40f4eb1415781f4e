#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace insula::storage::snapshots {

/// One zstd frame of it, by libarchive. Errors: io_failed.
result<std::string> compressed(std::string_view plain);

/// The other way; it has to have `bytes` then. Errors: store_failed: it is damaged.
result<std::string> expanded(std::string_view frame, std::size_t bytes);

} // namespace insula::storage::snapshots

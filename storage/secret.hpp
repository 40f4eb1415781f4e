#pragma once

#include "storage/store.hpp"

#include <string>
#include <string_view>

namespace insula::storage {

/// Random bytes of this name that the store has, or has from now on. Waits for the disk: for
/// starts.
result<std::string> kept_secret(store& where, std::string_view name);

} // namespace insula::storage

#pragma once

#include "base/disk_changes.hpp"
#include "base/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace insula::runtime {

/// Which are wanted. The names are those of snapshots.
struct compare_request {
  std::string newer;
  std::string older = {};    ///< Empty: the image.
  std::string after = {};    ///< The last path of the page before. Empty: from the beginning.
  std::uint32_t limit = 100; ///< 1 to max_changes_at_once.
};

/// Of an agent's text. Errors: io_failed: it is cut, or is none.
result<disk_changes> read_disk_changes(std::string_view text);

} // namespace insula::runtime

#pragma once

#include "base/unique_fd.hpp"

#include <string_view>

namespace insula::runtime {

/// A script as a file in memory, at its start. Empty, with errno, if there can be none.
unique_fd script_file(std::string_view script);

} // namespace insula::runtime

#pragma once

#include "base/unique_fd.hpp"

#include <cstddef>

namespace insula::runtime {

/// A program that is linked into this one, as a file in memory that can be run and that nobody can
/// change: no path to it exists anywhere. Empty with errno when the kernel refused.
unique_fd program_file(const char* name, const unsigned char* begin, const unsigned char* end);

} // namespace insula::runtime

#pragma once

#include <cerrno>
#include <system_error>

namespace insula::test {

/// What a test cannot go on without, on whichever thread it is; Catch's own words are for the
/// thread of the test alone.
inline void must(bool done) {
  if (!done)
    throw std::system_error{errno, std::generic_category(), "a test's own machinery"};
}

} // namespace insula::test

#pragma once

#include <cstddef>
#include <filesystem>
#include <system_error>

namespace insula::test {

/// How many files there are, in all directories below, but for those that are still written
/// (".incoming"). A directory may go while it is read: then all is read once more.
inline std::size_t files_below(const std::filesystem::path& path) {
  while (std::filesystem::exists(path)) {
    std::error_code gone;
    std::size_t count = 0;
    std::filesystem::recursive_directory_iterator at{path, gone};
    for (; !gone && at != std::filesystem::recursive_directory_iterator{}; at.increment(gone)) {
      std::error_code ignored;
      count +=
        at->is_regular_file(ignored) && at->path().string().find(".incoming") == std::string::npos;
    }
    if (!gone)
      return count;
  }
  return 0;
}

} // namespace insula::test

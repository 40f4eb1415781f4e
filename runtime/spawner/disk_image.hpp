#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <cstdint>
#include <string>

/// The file system in a file that disks are in: docs/decisions/0003 and 0058.
namespace insula::runtime::spawner {

/// A new image, under its name only once it can be mounted. Errors: launch_failed.
result<unique_fd> new_image(const std::string& image, std::uint64_t bytes);

/// What is mounted at `target` afterwards is the file system in `file`, with room for so many bytes
/// at least. Errors: launch_failed; io_failed: there is none in it that can be used.
result<unique_fd> mount_image(int file, const std::string& target, std::uint64_t bytes);

} // namespace insula::runtime::spawner

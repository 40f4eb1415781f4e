#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace insula::storage::images {

/// A part of an open file.
struct file_range {
  std::shared_ptr<const unique_fd> file;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

/// Files by name, read-only: a directory, or the members of a tar.
class file_set {
public:
  virtual ~file_set() = default;

  /// None: there is no regular file of that name. `name` is relative; what leads out or through a
  /// symlink of a directory is not there. Errors: io_failed.
  virtual result<std::optional<file_range>> find(const std::string& name) const = 0;
};

/// Opens a directory or a tar at `path`. A compressed tar is unpacked into a nameless file in
/// `scratch`, a directory, up to `max_bytes`.
/// Errors: invalid_request when it is neither or damaged; payload_too_large; io_failed;
///         deadline_exceeded once `cancelled`, asked at every block, is true.
result<std::unique_ptr<file_set>> open_file_set(const std::string& path, const std::string& scratch,
                                                std::uint64_t max_bytes,
                                                const std::function<bool()>& cancelled = {});

/// All of a small file. Errors: invalid_request, naming it, when it is missing or over `most`
/// bytes.
result<std::string> read_small(const file_set& from, const std::string& name, std::uint64_t most);

/// Reads at most `count` bytes of the range from `at`. 0: its end, or the file's. -1, with errno
/// set.
std::ptrdiff_t read_at(const file_range& from, std::uint64_t at, void* to, std::size_t count);

} // namespace insula::storage::images

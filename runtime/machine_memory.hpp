#pragma once

#include "base/unique_fd.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace insula::runtime {

/// The whole machine's memory at one moment, in bytes.
struct machine_memory {
  std::uint64_t all = 0;
  std::uint64_t available = 0; ///< What programs can still have.
  /// What the kernel says it holds for itself and does not give back: slabs, vmalloc, tables of
  /// pages. Pages that sockets and drivers take one by one are in no such list.
  std::uint64_t kernel = 0;
  /// Names and inodes that it remembers and gives back when others need memory. A backup has it
  /// remember gigabytes.
  std::uint64_t reclaimable = 0;
};

/// Reads it, for some twenty microseconds each time. Threads: any.
class machine_meter {
public:
  machine_meter();
  /// None: /proc/meminfo does not say it.
  std::optional<machine_memory> read() const;
  static std::optional<machine_memory> parse(std::string_view meminfo);

private:
  unique_fd meminfo_;
};

/// What a machine of that size keeps available where the configuration names nothing: a twentieth,
/// at least 256 MiB or, on a machine of less than 2 GiB, an eighth; at most 2 GiB.
std::uint64_t usual_reserve(std::uint64_t machine_bytes);

} // namespace insula::runtime

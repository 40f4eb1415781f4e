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
  /// What the kernel holds for itself and does not give back, pages at hand included.
  std::uint64_t kernel = 0;
  /// Names and inodes that it remembers and gives back when others need memory. A backup has it
  /// remember gigabytes.
  std::uint64_t reclaimable = 0;
};

/// Reads it, for some ten microseconds each time. Threads: any.
class machine_meter {
public:
  machine_meter();
  /// None: /proc/meminfo does not say it.
  std::optional<machine_memory> read() const;
  static std::optional<machine_memory> parse(std::string_view meminfo);

  /// Bytes of free pages that processors have at hand for themselves: free, and in no figure of
  /// /proc/meminfo. After much has come and gone they are up to an eighth of the memory, and they
  /// change by some 100 MiB within a second. It takes 20 to 50 us on a small machine.
  std::uint64_t pages_at_hand() const;
  static std::uint64_t parse_pages_at_hand(std::string_view zoneinfo);

private:
  unique_fd meminfo_, zoneinfo_;
};

/// What a machine of that size keeps available where the configuration names nothing: a twentieth,
/// at least 256 MiB or, on a machine of less than 2 GiB, an eighth; at most 2 GiB.
std::uint64_t usual_reserve(std::uint64_t machine_bytes);

} // namespace insula::runtime

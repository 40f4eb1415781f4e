#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

/// What the open files of processes hold in the kernel, as /proc/<pid>/fdinfo says it of each
/// descriptor: that names the locks of an open file exactly, wherever the file is and whichever
/// process has made them.
namespace insula::runtime::spawner {

struct open_files {
  std::uint64_t locks = 0; ///< POSIX, OFD and flock locks, and leases.
  std::uint64_t timers = 0, events = 0, polls = 0;
  std::uint64_t name_handles = 0; ///< Open files of directories that weigh something,
  std::uint64_t name_bytes = 0;   ///< and what all of them weigh.
  std::uint64_t in_flight = 0;    ///< Descriptors on their way through UNIX sockets.
};

/// What the names of a directory take for each handle, in bytes. `path`: as its process has it.
/// None: they take nothing.
using weigh_directory =
  std::function<std::optional<std::uint64_t>(dev_t device, const std::string& path)>;

/// Counts each open file once, however many descriptors and processes share it. POSIX locks belong
/// to a table of descriptors and are counted for each table.
///
/// Takes at most some six megabytes and `patience_ms`. A table of descriptors that is too large for
/// its share of either is looked at in random stretches, and what was seen stands for the rest of
/// that table.
open_files count_open_files(const std::vector<pid_t>& processes, const weigh_directory& weigh,
                            std::uint64_t patience_ms = 100);

inline constexpr std::size_t max_descriptors = 40'000; ///< Descriptors that one count looks at.

} // namespace insula::runtime::spawner

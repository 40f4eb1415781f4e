#pragma once

#include "runtime/spawner/protocol.hpp"

#include <cstdint>

namespace insula::runtime::spawner {

/// What of a sandbox's memory may go into what is there until somebody removes it: no end of a
/// process gives it back, so that a sandbox full of it would be of no use to its owner. All of it
/// together leaves a good part of the memory to programs.
struct memory_shares {
  std::uint64_t shm_bytes; ///< /dev/shm,
  std::uint64_t shm_files; ///< and the inodes in there.
  std::uint64_t segments;  ///< System V's shared memory, in bytes.
  std::uint64_t queues;    ///< System V's queues of messages, each of up to 1 MiB with its records.
  std::uint64_t semaphores;
  std::uint64_t disk_bytes; ///< The disk. As it is wanted where it is not in memory.

  bool operator==(const memory_shares&) const = default;
};

/// /dev/shm and segments together have half of the memory at most, or a quarter where the disk is
/// in memory too and has half. With no limit of memory all is as it is wanted, and System V has
/// what Linux gives it.
memory_shares share_memory(const limits& wanted, bool disk_in_memory);

} // namespace insula::runtime::spawner

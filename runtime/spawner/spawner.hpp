#pragma once

#include <cstdint>
#include <string>

namespace insula::runtime::spawner {

inline constexpr const char* program_name = "insula-spawner"; ///< As it is listed.
inline constexpr int status_cannot_start = 3; ///< It has ended for a reason that it has said.

struct options {
  std::string state_directory; ///< Absolute. The disk image and the mount points are made here, and
                               ///< the socket.
  std::string key;             ///< Names this node's cgroups.
  std::string disk = "auto";   ///< auto, btrfs or tmpfs.
  std::uint64_t pool_bytes = 0; ///< Size of the sparse image; 0: four fifths of what is free.
  int server = -1;              ///< The socket to the server that started us.
  /// As of memory_rules. 0: what is usual.
  std::uint64_t memory_reserve = 0, most_uncharged = 0;
};

/// The spawner's whole life: the one process of a node that stays root. Single-threaded, but for
/// the two that watch its permission and the machine's memory, and the one that looks at /usr when
/// it starts; it reads nothing but the server's fixed structs and what the kernel says. It outlives
/// the server, and ends when it is told to or by SIGTERM, with everything that it holds. Returns
/// the exit status.
int run(const options& given);

} // namespace insula::runtime::spawner

#pragma once

#include "runtime/machine_memory.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// What is to be done about kernel memory that no cgroup is charged for. Pure: readings go in,
/// decisions come out. All sizes are bytes, all times nanoseconds of one clock that only grows.
namespace insula::runtime::spawner {

/// Kinds of such memory that are counted for each sandbox (memory_kinds.hpp says how).
enum class memory_kind : std::uint8_t {
  file_locks,         ///< POSIX, OFD and flock locks.
  directory_names,    ///< Overlayfs' lists of names of open directories.
  netlink_queues,     ///< Messages that a netlink socket has not read.
  socket_errors,      ///< What the network answered to datagrams, for a socket that wants it.
  connection_records, ///< Entries of conntrack.
  seccomp_filters,    ///< Programs of filters, and their compiled form.
  small_objects,      ///< Contexts of timerfd, eventfd, epoll and the like.
};
inline constexpr std::size_t memory_kinds = 7;
const char* name_of(memory_kind kind);

using kinds_held = std::array<std::uint64_t, memory_kinds>;

struct memory_rules {
  /// The machine keeps so much available; 0: it need not.
  std::uint64_t reserve = 0;
  /// A sandbox may hold so much that it is not charged for, as long as the machine has its reserve.
  /// A database with 100,000 locks holds 19 MiB, and 5,000 handles on a directory of 300 names hold
  /// 140 MiB.
  std::uint64_t most_held = 256ull << 20;
  /// Below the reserve it may hold so much.
  std::uint64_t most_held_when_short = 64ull << 20;
};

/// Of a sandbox: `id` is the asker's.
struct sandbox_memory {
  std::uint64_t id = 0;
  kinds_held held{};
};

struct memory_verdict {
  std::uint64_t id = 0;
  memory_kind kind{};      ///< The largest,
  std::uint64_t bytes = 0; ///< and what all of them come to.
};

/// Decides when it is worth to look closer, since a look at each sandbox costs milliseconds: the
/// kernel's memory has grown by half of what one sandbox may hold, or the machine is short. A look
/// that finds nobody makes the next one wait longer, unless there is growth again.
///
/// Threads: one at a time.
class memory_suspicion {
public:
  /// `at_start`: before there is any sandbox.
  memory_suspicion(const memory_rules& rules, const machine_memory& at_start)
      : rules_(rules)
      , looked_at_(at_start.kernel)
      , smallest_(at_start.kernel) {}

  bool wants_look(const machine_memory& now, std::uint64_t time);

  /// Of a look: the sandboxes' groups were charged `charged` of the kernel's memory. Answers what
  /// the kernel has come to hold beside that since the smallest such reading.
  std::uint64_t uncharged(const machine_memory& now, std::uint64_t charged);

  /// What a look came to: a sandbox to be ended; nobody; or one that seemed to be it and was
  /// cleared when it was counted again. Since counts are estimates, the last is looked at again,
  /// ever more rarely, without any growth.
  enum class outcome : std::uint8_t { found, nobody, cleared };
  void looked(const machine_memory& now, std::uint64_t time, outcome what);

  bool is_short(const machine_memory& now) const { return now.available < rules_.reserve; }

private:
  static constexpr std::uint64_t pause_ns = 2'000'000'000; ///< Between two looks.
  static constexpr std::uint64_t longest_pause_ns = 16 * pause_ns;

  memory_rules rules_;
  std::uint64_t looked_at_; ///< The kernel's memory then.
  std::uint64_t smallest_;  ///< Of what was charged to no group here.
  std::uint64_t last_ = 0;  ///< When it was looked; 0: never.
  std::uint64_t pause_ = pause_ns;
  bool in_doubt_ = false; ///< Somebody was cleared in the last look.
};

/// Which sandbox is to end, if one is: the largest of those above what is allowed, if the machine
/// has lost that much. `uncharged`: as of memory_suspicion.
std::optional<memory_verdict> judge(const memory_rules& rules, bool is_short,
                                    std::uint64_t uncharged,
                                    const std::vector<sandbox_memory>& sandboxes);

/// "Sandbox ended: it holds kernel memory outside of its limit (file locks: 2.1 GiB)"
std::string reason_of(const memory_verdict& verdict);

} // namespace insula::runtime::spawner

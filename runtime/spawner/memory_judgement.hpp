#pragma once

#include "runtime/machine_memory.hpp"

#include <algorithm>
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
  memberships,        ///< Groups of IPv6 multicast and their lists of senders.
  hidden,             ///< What nobody can count: see sandbox_memory::may_hide.
};
inline constexpr std::size_t memory_kinds = 9;
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
  /// Open files that may hold more than can be counted: handles on merged directories, which
  /// remember names that are gone; descriptors in flight, which no list has; files with locks that
  /// are only mapped.
  std::uint64_t may_hide = 0;
  bool cleared = false; ///< It has stood still and been counted: it is not the one.
};
std::uint64_t bytes_of(const sandbox_memory& sandbox);

struct memory_verdict {
  std::uint64_t id = 0;
  memory_kind kind{};      ///< The largest,
  std::uint64_t bytes = 0; ///< and what all of them come to.
};

/// Decides when it is worth to look closer. Once the kernel's memory has changed by a quarter of
/// what one sandbox may hold, and each 8 seconds, the groups are asked what of that they are
/// charged for, which costs some microseconds each. If the rest has grown by half of what one may
/// hold, or the machine is short, each sandbox is looked at, which costs more. Where a look has
/// found a sandbox that lacks less than that half, as much as it lacks, and at least a sixteenth,
/// is enough for the next look. A question or a look that finds nothing makes the next one wait
/// longer, up to a ceiling. Growth that is faster than that does not wait for it, but looks take a
/// third of the time at most.
///
/// Threads: one at a time.
class memory_suspicion {
public:
  /// `at_start`: before there is any sandbox; `known`: as for wants_look().
  memory_suspicion(const memory_rules& rules, const machine_memory& at_start,
                   std::uint64_t known = 0)
      : rules_(rules)
      , asked_at_(at_start.kernel)
      , smallest_(at_start.kernel - std::min(known, at_start.kernel))
      , beside_(smallest_) {}

  /// Are the groups to be asked? wants_look() is next, then.
  bool wants_charges(const machine_memory& now, std::uint64_t time) const;

  /// Of the kernel's memory `known` bytes are charged to the sandboxes' groups, or pages at hand.
  /// Is each sandbox to be looked at? looked() is next, then.
  bool wants_look(const machine_memory& now, std::uint64_t known, std::uint64_t time);

  /// What the kernel had come to hold beside that, at the last wants_look(), since the
  /// smallest such reading.
  std::uint64_t uncharged() const { return beside_ - smallest_; }

  /// `time`: when the look was over, and `took`: how long it was.
  /// `held`: what each sandbox holds that stays. What none of them can hold is looked for again.
  /// If nobody was found, a quarter of it is taken for the machine's own each time.
  void looked(std::uint64_t time, std::uint64_t took, bool found,
              const std::vector<sandbox_memory>& held);

  bool is_short(const machine_memory& now) const { return now.available < rules_.reserve; }

  static constexpr std::uint64_t pause_ns = 2'000'000'000; ///< Between two looks.
  static constexpr std::uint64_t longest_pause_ns = 16 * pause_ns;
  /// When there is growth, and the machine is not short.
  static constexpr std::uint64_t longest_pause_of_growth_ns = 4 * pause_ns;

private:
  std::uint64_t growth_to_look() const;
  bool has_changed(const machine_memory& now) const;
  bool is_unexplained() const { return uncharged() - explained_ >= growth_to_look(); }
  std::uint64_t longest_of_growth(const machine_memory& now) const {
    return is_short(now) ? pause_ns : longest_pause_of_growth_ns;
  }

  memory_rules rules_;
  std::uint64_t asked_at_;             ///< The kernel's memory then.
  std::uint64_t smallest_;             ///< Of what was charged to no group here.
  std::uint64_t beside_;               ///< The last such reading.
  std::uint64_t looked_at_ = 0;        ///< What was uncharged then, or less since, and
  std::uint64_t explained_ = 0;        ///< what of it was counted for sandboxes.
  std::uint64_t largest_ = 0;          ///< What one sandbox held then.
  std::uint64_t asked_ = 0, last_ = 0; ///< When it was asked and looked; 0: never.
  std::uint64_t took_ = 0;             ///< The last look.
  std::uint64_t changed_ = 0;          ///< When a question was due to a change; 0: never.
  std::uint64_t due_ = 0;              ///< When the look is that growth waits for; 0: none does.
  std::uint64_t pause_ = pause_ns, pause_of_asking_ = pause_ns;
};

/// How much an open file of sandbox_memory::may_hide is believed to hold at most: a directory of
/// 100,000 names.
inline constexpr std::uint64_t most_hidden_by_each = 16ull << 20;

/// What the sandboxes may hold at most: what was counted, and what one of them may hide.
std::uint64_t possible(const std::vector<sandbox_memory>& sandboxes);

/// Which sandbox is to end, if one is: the largest of those above what is allowed, if the machine
/// has lost that much. On a machine that is short, what nobody is known to hold counts as that of
/// the sandbox that may hide most. `uncharged`: as of memory_suspicion.
std::optional<memory_verdict> judge(const memory_rules& rules, bool is_short,
                                    std::uint64_t uncharged,
                                    const std::vector<sandbox_memory>& sandboxes);

/// "Sandbox ended: it holds kernel memory outside of its limit (file locks: 2.1 GiB)"
std::string reason_of(const memory_verdict& verdict);

} // namespace insula::runtime::spawner

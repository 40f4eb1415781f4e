#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace insula::runtime {

/// Ceilings of the commands of one sandbox. 0 means none.
struct cgroup_limits {
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpu_percent = 0; ///< Of one CPU: 150 is one and a half.
  std::uint32_t processes = 0;

  bool operator==(const cgroup_limits&) const = default;
};

/// What a slot uses now. None: this machine's cgroups do not say it.
struct cgroup_usage {
  std::optional<std::uint64_t> memory_bytes; ///< As its limit counts it, cached files included.
  std::optional<std::uint64_t> cpu_us;       ///< Since it was made.
  std::optional<std::uint32_t> processes;    ///< As its limit counts them: each thread is one.
};

/// One mounted hierarchy and the directory in it below which a node may make its own.
struct cgroup_hierarchy {
  std::string
    controller; ///< "memory", "pids", "cpu" or "freezer" of v1; empty: the unified hierarchy.
  std::string directory;
};

/// Where this machine keeps its cgroups: v1, v2, or both (hybrid), read from the two texts the
/// kernel gives.
std::vector<cgroup_hierarchy> find_cgroup_hierarchies(std::string_view proc_mounts,
                                                      std::string_view proc_self_cgroup);

/// The controllers of v1 that set no limit here, but without which programs do not look at the
/// others: Java wants all that it knows. Those that share a hierarchy with a limit are left out.
std::vector<cgroup_hierarchy> find_shown_hierarchies(std::string_view proc_mounts,
                                                     std::string_view proc_self_cgroup);

/// The kernel's list of controllers (/proc/cgroups) without the number of groups that the machine
/// has.
std::string without_group_counts(std::string_view proc_cgroups);
/// That of this machine.
std::string list_of_controllers();

/// A directory that a sandbox sees of its own group, read-only.
struct shown_cgroup {
  std::string name; ///< Below /sys/fs/cgroup: the controller of v1. Empty: all of it, of v2.
  std::string directory;
};

/// Which of the groups of a node.
struct cgroup_id {
  std::uint32_t number;
  const char* kind = "sandboxes/sb";
  bool divided = true; ///< Has the parts of a slot.

  cgroup_id(std::uint32_t slot) // NOLINT(google-explicit-constructor): a slot's is what is meant.
      : number(slot) {}
  cgroup_id(std::uint32_t n, const char* k)
      : number(n)
      , kind(k)
      , divided(false) {}
};

/// The two parts of a slot.
enum class cgroup_part {
  commands, ///< For what runs in a sandbox, and has its limits.
  reserve,  ///< For what its owner starts while the commands have used up theirs.
};

/// How much memory a slot may have beyond that of its commands. 0 where that has no limit.
std::uint64_t reserved_memory(std::uint64_t limit);

/// And how many processes.
inline constexpr std::uint32_t reserved_processes = 64;

/// Of the program that serves a bucket in a sandbox.
inline cgroup_id group_of_mount(std::uint32_t number) {
  return {number, "mount"};
}

/// How many processes the kernel has ended for lack of memory, by the files that
/// cgroup_tree::open_kill_counts() has opened. None: no file can be read, as once the groups are
/// gone. Reading takes about a microsecond for each file.
std::optional<std::uint64_t> killed_processes(const std::vector<unique_fd>& counts);

/// The cgroups of one node: `<own>/insula-<key>/sandboxes/sb-<slot>` in every hierarchy in use. The
/// limits are in two levels: those of the slot, and below it, in `commands`, those of what runs
/// there. The reserve is the slot's own group, but in the unified hierarchy, where a group with
/// others below it has no processes, `reserve` beside `commands`. A hierarchy without limits has
/// one level.
///
/// The key keeps the nodes of one machine apart. Nothing outside of it is touched, but that on a
/// machine with v2 alone the own group begins to hand its controllers down.
///
/// `sandboxes` can stand still as one, with those that are made meanwhile. Each of them stands
/// still or goes on by itself below that: what it was told in the meantime holds once all go on.
///
/// Threads: none of its own; const functions may be called from any.
/// Source:  the kernel's cgroup v1 (memory, pids, cfs bandwidth) and v2 guides.
class cgroup_tree {
public:
  /// Looks at this process's own cgroups, or at those of another one.
  static cgroup_tree of_this_process(std::string key);
  static cgroup_tree of_process(pid_t pid, std::string key);

  cgroup_tree(std::vector<cgroup_hierarchy> hierarchies, std::string key,
              std::vector<cgroup_hierarchy> shown = {});

  /// Makes the node's directories and moves this process into `host`, a leaf beside the sandboxes,
  /// where every child that is not moved stays: the agents. Where the unified hierarchy holds the
  /// limits, the parent process moves along if it is in that group, which may have no processes of
  /// its own when it hands controllers down. Errors: launch_failed; everybody is back and nothing
  /// is left then.
  result<void> prepare() const;

  /// The way back, once no sandbox lives: whoever is in `host` returns to the group in which
  /// prepare() found this process, controllers are no longer handed down from there, and the node's
  /// directories go.
  void leave() const;

  /// Makes the cgroups of a slot. `limits` are those of the commands; the slot has what is reserved
  /// besides. Errors: launch_failed, naming the file or the controller; nothing is left then.
  result<void> create(cgroup_id slot, const cgroup_limits& limits) const;

  /// Gives the cgroups of a slot other limits. Errors: launch_failed, naming the file; some of them
  /// may be set then.
  result<void> limit(std::uint32_t slot, const cgroup_limits& limits) const;

  /// The cgroup.procs files of a slot's part: who writes "0" into all of them is in. One for each
  /// hierarchy.
  result<std::vector<unique_fd>> open_procs(cgroup_id slot,
                                            cgroup_part part = cgroup_part::commands) const;

  /// What a sandbox in this slot is shown of its limits and its use: directories that are its own
  /// alone. Those without a limit are empty groups.
  std::vector<shown_cgroup> shown(std::uint32_t slot) const;

  /// Removes them. False: something still lives in there.
  bool remove(cgroup_id slot) const;

  /// The files in which the kernel counts the processes of this slot that it has ended for lack of
  /// memory. None: this machine does not count them, or the slot has no groups yet.
  std::vector<unique_fd> open_kill_counts(std::uint32_t slot) const;

  /// Reads a small file for each of its figures. CPU time is told by every unified hierarchy, also
  /// one without controllers, and in v1 where cpuacct is mounted together with cpu, as it usually
  /// is.
  cgroup_usage usage(std::uint32_t slot) const;

  /// What the kernel holds for the processes of a slot and has charged to it, sockets' buffers
  /// included. 0: it cannot be told.
  std::uint64_t kernel_memory(std::uint32_t slot) const;
  /// Does that have the names and inodes in it that the kernel gives back when it has to? V1 does
  /// not tell them apart.
  bool charges_reclaimable() const;

  /// The processes of a slot, as this one numbers them.
  std::vector<pid_t> processes(std::uint32_t slot) const;

  /// Can processes be made to stand still here? Known once prepare() has been called.
  bool can_freeze() const;

  /// The file that has the processes of a slot stand still and go on; nothing where this machine's
  /// cgroups have none. Who holds it needs no rights on it.
  unique_fd open_freezer(std::uint32_t slot) const;
  /// The same of all slots together.
  unique_fd open_freezer_of_all() const;

  /// Have them stand still, which takes them a moment, or go on. `freezer` is what open_freezer()
  /// gave. Both are one write, which takes microseconds. False: the kernel refused.
  bool freeze(int freezer) const;
  bool thaw(int freezer) const;

  /// Do all of them stand still? If not, v1 has to be told again.
  bool is_frozen(std::uint32_t slot) const;
  bool all_frozen() const;

  /// In v1 what stands still does not die of a signal, so it has to go on for that. Where all stand
  /// still it is killed and taken out of there, and this has to be called until nothing is left:
  /// what enters later stands still as well.
  void let_die(std::uint32_t slot) const;

  /// Kills what a dead node of the same key has left and removes all its directories. True: nothing
  /// is left. This process and the one that started it live on, wherever they are.
  bool sweep() const;

  const std::vector<cgroup_hierarchy>& hierarchies() const { return hierarchies_; }
  /// In words, for the log: "v1", "v2" or "hybrid".
  std::string mode() const;

private:
  std::string node(const cgroup_hierarchy& in) const;
  std::string sandboxes(const cgroup_hierarchy& in) const;
  std::string path(const cgroup_hierarchy& in, cgroup_id which) const;
  bool limited(const cgroup_hierarchy& in) const;
  bool has_limits(const cgroup_hierarchy& in) const;
  std::string path(const cgroup_hierarchy& in, cgroup_id which, cgroup_part part) const;
  std::vector<std::string> groups(const cgroup_hierarchy& in, cgroup_id which) const;
  result<void> held(const cgroup_limits& limits) const;
  result<void> set_limits(const cgroup_hierarchy& in, const std::string& dir,
                          const cgroup_limits& limits, bool lift) const;
  result<void> set_limits(const cgroup_hierarchy& in, cgroup_id which, const cgroup_limits& limits,
                          bool lift) const;
  const cgroup_hierarchy* freezing() const;
  static const char* freezer_file(const cgroup_hierarchy& in);
  unique_fd open_freezer(const std::string& group) const;
  bool is_frozen(const std::string& group) const;

  std::vector<cgroup_hierarchy> hierarchies_;
  std::vector<cgroup_hierarchy> shown_;
  std::string key_;
  bool unified_controllers_ = false; ///< The limits are set in the unified hierarchy.
};

} // namespace insula::runtime

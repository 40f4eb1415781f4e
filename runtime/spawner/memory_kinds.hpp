#pragma once

#include "base/unique_fd.hpp"
#include "runtime/cgroup.hpp"
#include "runtime/spawner/memory_judgement.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

/// Readings of kernel memory that no cgroup is charged for. Every reading has a ceiling, since its
/// size is what a sandbox makes of it.
namespace insula::runtime::spawner {

/// About how many file locks there are, by the process that has them, or for those that no process
/// has (OFD locks) by the device of the file. The first ones are counted. Of the others there are
/// samples, at ever larger distances: the kernel walks over all that come before for each read of
/// /proc/locks, so that a million costs minutes to read and half a second to sample.
struct lock_sample {
  std::map<pid_t, std::uint64_t> of_process;
  std::map<std::uint64_t, std::uint64_t> of_device;

  static constexpr std::uint64_t counted = 10'000;
  static constexpr std::uint64_t farthest = 320'000; ///< A sample there stands for all behind it.
  static lock_sample read();
};

/// What is known of a sandbox beside its processes.
struct watched_sandbox {
  std::uint64_t id = 0;
  std::uint32_t slot = 0;
  pid_t first = -1;  ///< Its PID 1 as the machine numbers it.
  std::string image; ///< The root of its image, and
  std::string disk;  ///< its own disk, with the upper layers `u` and `uu`.
};

/// One sandbox as its kinds are read. What several kinds need is read once.
class inhabitants {
public:
  inhabitants(const watched_sandbox& who, const cgroup_tree& groups, const lock_sample& locks);

  const watched_sandbox& who() const { return who_; }
  const lock_sample& locks() const { return locks_; }
  const std::vector<pid_t>& processes() const { return processes_; }
  const std::set<std::uint64_t>& devices() const; ///< Of file systems that nobody else has.

  struct descriptors {
    std::map<std::string, std::uint64_t> directories; ///< Open ones, by their paths.
    std::uint64_t timers = 0, events = 0, polls = 0;
  };
  static constexpr std::size_t max_descriptors = 200'000;
  const descriptors& open() const;

private:
  void count(const std::string& directory, descriptors& into, std::size_t& left) const;

  const watched_sandbox& who_;
  const lock_sample& locks_;
  std::vector<pid_t> processes_;
  mutable std::optional<descriptors> open_;
  mutable std::optional<std::set<std::uint64_t>> devices_;
};

/// A kind: its name is in name_of(), its bytes each are in the function.
struct kind_of_memory {
  memory_kind kind;
  std::uint64_t (*held)(const inhabitants& in); ///< Bytes, estimated.
};
const std::array<kind_of_memory, memory_kinds>& all_kinds();

kinds_held read_kinds(const watched_sandbox& who, const cgroup_tree& groups,
                      const lock_sample& locks);

/// Of a sandbox that stands still: are there really more locks than `count` in it? A sample says
/// only what is new. Asks the list of the sandbox's own processes, which a mask hides inside; that
/// walks over all locks of the machine until it has found so many.
bool has_locks(const watched_sandbox& who, std::uint64_t count);

} // namespace insula::runtime::spawner

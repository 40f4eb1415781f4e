#pragma once

#include "base/unique_fd.hpp"
#include "runtime/cgroup.hpp"
#include "runtime/spawner/memory_judgement.hpp"
#include "runtime/spawner/memory_kinds.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace insula::runtime::spawner {

/// Watches over kernel memory that no cgroup is charged for. Ten times a second it reads how much
/// the kernel holds. If that has grown by more than groups are charged for, or the machine is
/// short, it looks at each sandbox. One that holds too much stands still, is looked at again, and
/// is then told of to be ended. If it is cleared, the next largest has its turn.
///
/// A thread of its own does that, because a disk or a server that does not answer holds the
/// spawner's loop up, and because a look at all sandboxes takes its time.
///
/// Threads: the spawner's own.
class memory_watch {
public:
  memory_watch(const cgroup_tree& groups, const memory_rules& rules)
      : groups_(groups)
      , rules_(rules) {}
  ~memory_watch();

  /// Before there is a sandbox, once the cgroups are there, and signals are blocked. False: errno
  /// says why.
  bool start();

  /// A sandbox is there from now on, or is not any more. Its id is of no other one ever.
  void add(const watched_sandbox& who);
  void remove(std::uint32_t slot);

  /// Readable when a sandbox is to be ended; take_verdicts() gives them once, by the ids.
  int news() const { return news_.get(); }
  std::vector<memory_verdict> take_verdicts();

private:
  void watch();
  void look(const machine_memory& now, memory_suspicion& suspicion, std::uint64_t time);
  bool confirm(const watched_sandbox& who, bool is_short, std::uint64_t uncharged,
               std::vector<sandbox_memory>& held);

  const cgroup_tree& groups_;
  const memory_rules rules_;
  machine_meter meter_;
  unique_fd timer_, stop_, news_;
  std::mutex guard_; ///< For the next two.
  std::map<std::uint32_t, watched_sandbox> sandboxes_;
  std::vector<memory_verdict> verdicts_;
  std::thread watcher_;
};

} // namespace insula::runtime::spawner

#pragma once

#include <sys/types.h>

/// The processes that descend from this one, as /proc shows them.
namespace insula::runtime::agent {

/// What there was at a moment: whatever began in an earlier tick of the kernel's clock, and in this
/// one the children of these two. What descends from those is as old as they are.
struct process_mark {
  unsigned long long tick = 0;
  static constexpr int most = 256;
  pid_t children[most];
  int count = 0;
};

/// Of this process and of `shell`, a child of it.
process_mark mark_processes(pid_t shell);

/// Who has had a signal.
struct signalled_processes {
  static constexpr int most = 512;
  pid_t all[most];
  int count = 0;
};

/// To each descendant that is not as old as the mark, but not to `shell`, and to nobody who `had`
/// it.
void signal_new_processes(pid_t shell, const process_mark& before, int number,
                          signalled_processes* had = nullptr);

/// To each descendant.
void signal_descendants(int number);

} // namespace insula::runtime::agent

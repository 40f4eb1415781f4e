#pragma once

#include <sys/types.h>

/// The sandbox's processes, as /proc shows them.
namespace insula::runtime::agent {

/// Once, before anything else here.
void open_process_list();

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

/// To each descendant of this process that is not as old as the mark, but not to `shell`, and to
/// nobody who `had` it; if there is an `only`, to nobody else. Answers how many there are, with
/// those who had it. 0 as a number only counts them.
int signal_new_processes(pid_t shell, const process_mark& before, int number,
                         signalled_processes* had = nullptr,
                         const signalled_processes* only = nullptr);

/// To each descendant of this process.
void signal_descendants(int number);

/// 0: it has none.
pid_t first_child_of(pid_t process);

/// Its children that have begun within the last second, and theirs. How many there are.
int young_descendants_of(pid_t leader, pid_t (&into)[64]);

/// Takes in what there is, for signal_session(), find_quiet_shells() and hunt().
void look_at_processes();

/// To all that was in the session or descended from its leader when it was looked, but not to
/// `but`. False: there is nothing that lives. The leader itself may have ended long ago.
bool signal_session(pid_t session, int number, pid_t but);

/// Shells that wait at the prompt of a terminal of theirs, and had nothing in its session and no
/// child when it was looked. Answers how many there are, at most `most`.
int find_quiet_shells(pid_t* into, int most);

/// Processes by their numbers and beginnings: a number can be another one's soon.
struct hunted_processes {
  static constexpr int most = 512;
  struct one {
    pid_t pid;
    unsigned long long began;
  };
  one all[most];
  int count = 0;
};

/// To all that was in the session of this leader, or descended from the leader or from a known one
/// when it was looked; these are known from then on, also when their parents have ended. `leader`
/// 0: it has ended, and its number may be another's; the known ones remain. Not to those of one
/// group, which has the signal already. Answers how many there are.
int hunt(pid_t leader, int number, pid_t spared_group, hunted_processes& known);

} // namespace insula::runtime::agent

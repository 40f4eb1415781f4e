#pragma once

/// How many processors a sandbox has, for the programs that ask: its CPU limit as a whole number,
/// rounded up. Programs ask in three ways, and all of them get the same answer: the files of a
/// cgroup (/sys/fs/cgroup/cpu.max), the list of processors that are online, and the processors that
/// a process may run on. The last is a hint that a process can change. The limit itself is the
/// kernel's.
namespace insula::runtime::agent {

/// Keeps the descriptors of cpu.max, which is only written where the machine has v1, and of the
/// list of processors; -1: there is none. Called once, before the first command.
void open_processors(int limit_file, int list_file);

/// Writes into both what the limit is now. A limit changes when a waiting sandbox is claimed, so
/// this comes before each command.
void show_processors();

/// Has this process, and those that it starts, run on as many processors as the limit is worth,
/// from the one on that it is on now, which the kernel has found idle. Where the limit allows all
/// of them nothing changes.
void stay_on_processors();

} // namespace insula::runtime::agent

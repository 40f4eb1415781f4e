#pragma once

#include <linux/filter.h>
#include <span>

/// How much of the kernel's memory for compiled filters sandboxes can take. The kernel has one
/// ceiling for that memory per machine (net.core.bpf_jit_limit), charges no cgroup for it, and
/// lets a process hold 32,768 instructions, which are 440 KiB when they are compiled.
namespace insula::runtime::spawner {

/// Raises the machine's ceiling, unless it is higher or the machine has little memory. It stays so
/// when the spawner has ended, as the ceiling of open files does. Logs what it has done, or why it
/// could not.
void raise_ceiling_of_filters();

/// Leaves some 7,000 of those instructions to each process that this one starts from now on: 104
/// KiB. It loads two filters for good, which allow everything with their first instruction; what
/// follows that one is counted, and never run. The kernel keeps them once for all. A trial comes
/// before it: where `of_sandbox` and a filter of a program's own would not fit behind them, nothing
/// is changed, and the log says so. Needs CAP_SYS_ADMIN. Nothing is changed either where there are
/// other threads: those would go on starting processes without that.
void narrow_filters_of_processes(std::span<const sock_filter> of_sandbox);

} // namespace insula::runtime::spawner

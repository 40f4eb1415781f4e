#pragma once

/// Whether the commands of a sandbox have used up what they may have together, by the figures of
/// their own group, which the sandbox sees below /sys/fs/cgroup. A busy processor is no shortage.
namespace insula::runtime::agent {

/// Keeps the files open. Called once, before anything is started. A figure that this machine does
/// not have is never one of a shortage.
void open_shortage();

/// True: a few processes at most can still be started, or one was refused within the last seconds;
/// or the kernel has ended one for lack of memory within the last seconds, and most of the memory
/// is in use again.
bool is_short();

} // namespace insula::runtime::agent

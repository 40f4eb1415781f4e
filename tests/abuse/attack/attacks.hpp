#pragma once

#include <functional>

/// Programs that mean harm, each a function that tries to use up one thing of a machine. When it
/// meets a limit it says so in one line, `<how many> <errno>`, and presses on with what it holds
/// until somebody ends it. Linked statically: a sandbox need not have anything.
namespace insula::attack {

/// Says once how far it came and what stopped it (errno).
void met_limit(long count);

[[noreturn]] void press_on();

/// Returns in a child. When that has ended, in another one, for ever.
void again();

/// Runs `deed` in a child that the kernel takes first when memory runs out. The deed answers how
/// far it came, and errno is what stopped it. Says that, or "0 killed" for a child that was taken,
/// and presses on.
[[noreturn]] void settle(long (*deed)());

/// So many such children do it and keep what they have. Says how many were killed once all have it
/// or are dead.
[[noreturn]] void be_many(long processes, const std::function<void()>& deed);

// ---- Processes and processors

[[noreturn]] void fork_bomb();
[[noreturn]] void many_threads(long wanted);
[[noreturn]] void zombie_storm();
[[noreturn]] void burn(long threads);
[[noreturn]] void stop_everybody();

// ---- Memory and descriptors

[[noreturn]] void memory_hog();
/// So many processes, each of which wants that many MiB. Says how many have been killed once all
/// are settled: `<killed> 0`. The same for descriptors of more than one process.
[[noreturn]] void many_hogs(long processes, long mebibytes);
[[noreturn]] void many_descriptors(const char* kind, long processes);
[[noreturn]] void many_terminals();
/// File locks of many files: "posix", or "open" for those that belong to an open file.
[[noreturn]] void many_locks(const char* kind, long wanted);
/// Handles of one directory that each remember its names: so many of them, of so many names.
[[noreturn]] void many_directories(const char* place, long handles, long names);

// ---- Tables and memory that the kernel has once per machine

/// What waits in sockets and pipes: "tcp", "udp", "unix", "netlink", "errors" (of UDP), "pipes".
[[noreturn]] void fill_buffers(const char* kind);
/// "aio", "queues" (of POSIX messages), "signals", "timers", "watches" (of inotify), and those of
/// System V: "segments", "messages", "semaphores".
[[noreturn]] void fill_kernel_table(const char* kind);
/// So many processes read what the sandbox is shown of its use, for ever.
[[noreturn]] void read_figures(long processes);
/// So many processes, each with all filters of system calls that it can load.
[[noreturn]] void many_filters(long processes);
/// Asks for one thing that nobody may have inside: "filter" (of a socket), "key", "mount", or
/// "options" of sockets whose memory is charged to nobody. Says what it was told; of several
/// options the first that is not refused, by its number in the list.
[[noreturn]] void ask_for(const char* what);

// ---- Files and output

/// Fills the file system of `directory` with one file.
[[noreturn]] void fill_bytes(const char* directory);
/// With empty files.
[[noreturn]] void fill_inodes(const char* directory);
/// Directories in each other, with the longest names that are allowed.
void deep_directories(long levels);
/// Prints so many GiB, and ends.
void flood(long gibibytes);
/// Says so first, and prints for ever.
[[noreturn]] void chatter();

} // namespace insula::attack

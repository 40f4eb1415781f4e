#pragma once

/// Programs that mean harm, each a function that tries to use up one thing of a machine. When it
/// meets a limit it says so in one line, `<how many> <errno>`, and presses on with what it holds
/// until somebody ends it. Linked statically: a sandbox need not have anything.
namespace insula::attack {

/// Says once how far it came and what stopped it (errno).
void met_limit(long count);

[[noreturn]] void press_on();

/// Returns in a child. When that has ended, in another one, for ever.
void again();

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
/// File locks, of many files.
[[noreturn]] void many_locks(long wanted);

// ---- Files and output

/// Fills the file system of `directory` with one file.
[[noreturn]] void fill_bytes(const char* directory);
/// With empty files.
[[noreturn]] void fill_inodes(const char* directory);
/// Directories in each other, with the longest names that are allowed.
void deep_directories(long levels);
/// Prints so many GiB, and ends.
void flood(long gibibytes);

} // namespace insula::attack

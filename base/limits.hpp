#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Every ceiling that is not a matter of configuration, with its reason. What an operator may want
/// to change lives in cluster.yaml.
namespace insula::limits {

using namespace std::chrono_literals;

// ---- HTTP
// -------------------------------------------------------------------------------------------------------

/// A request line longer than this is refused. Paths of a file are at most 4,096 bytes, three times
/// that when encoded.
inline constexpr std::size_t url_bytes = 16 * 1024;
inline constexpr std::size_t header_fields = 100;
inline constexpr std::size_t header_value_bytes = 16 * 1024;

/// Body of an exec request. Scripts of 90 kB are usual; the contract wants at least 8 MiB.
inline constexpr std::uint64_t exec_body_bytes = 16ull << 20;

/// All request bodies that are in memory together. Sixteen of the largest: a body is there for
/// moments, so more than that is no load but an attack.
inline constexpr std::uint64_t buffered_body_bytes = 256ull << 20;

/// Elements of a command's argv. Each becomes a string of its own, and the shortest take three
/// bytes of a body: without a ceiling one body would cost many times its size. Command lines of
/// globs over large trees stay below it.
inline constexpr std::size_t argv_elements = 65'536;

/// Body of a file upload, inclusive; a number of the public contract.
inline constexpr std::uint64_t file_body_bytes = 33'554'432;

/// A JSON text that nests deeper is refused.
inline constexpr std::size_t json_depth = 64;

/// Silence on an event stream after which a comment is sent, since proxies cut idle connections.
inline constexpr auto stream_heartbeat = 20s;

/// How long a client may take nothing before its stream is dropped.
inline constexpr auto reader_patience = 30s;

// ---- Sandboxes and commands
// -------------------------------------------------------------------------------------

/// Requests that wait for one sandbox to start. More are refused: nobody can be waiting for that
/// many answers.
inline constexpr std::size_t waiting_per_sandbox = 4096;

/// Commands that run at once in one sandbox; its process limit usually ends earlier.
inline constexpr std::size_t commands_per_sandbox = 2048;

/// Commands of one sandbox at once that may keep as much output as the configuration says; a
/// further one keeps a megabyte. Logs are on the node's disk, outside of the sandbox's own ceiling.
inline constexpr std::size_t full_logs_per_sandbox = 16;

/// A command that has not come to life by then is killed: something inside keeps it from it.
inline constexpr auto start_patience = 30s;

/// From SIGTERM to SIGKILL when a command's time is up. The Python client gives up 5 s after the
/// command's own time.
inline constexpr auto kill_grace = 3s;

/// A sandbox that is not ready by then is given up. On a busy machine a hundred start at once.
inline constexpr auto create_patience = 30s;

/// Who has asked for a sandbox's end is owed an answer by then, if only that it takes longer. The
/// spawner goes on trying.
inline constexpr auto destroy_patience = 30s;

/// A command line up to here is one argument of bash (the kernel allows 131,072 bytes with the
/// NUL); a longer one travels through a file.
inline constexpr std::size_t inline_command_bytes = 120 * 1024;

} // namespace insula::limits

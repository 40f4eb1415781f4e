#pragma once

namespace insula::runtime::agent {

/// Reads or replaces one file through `channel` (base/stream_frames.hpp). Runs in a child of the
/// agent that has already become the sandbox's user: whatever the path leads to, it is the
/// sandbox's own view and its own rights. Blocks; the child ends right after it.
void send_file(int channel, const char* path);
void receive_file(int channel, const char* path);

} // namespace insula::runtime::agent

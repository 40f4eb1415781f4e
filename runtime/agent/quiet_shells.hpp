#pragma once

namespace insula::runtime::agent {

/// Shells that one answer names: more than a sandbox has terminals.
inline constexpr int max_quiet_shells = 128;

/// Writes which terminals' shells wait for somebody to type, with nothing else in their session and
/// no child, into `channel`: a line with the number of each. Runs in a child of the agent that is
/// root of the sandbox. Blocks; the child ends right after it.
void send_quiet_shells(int channel);

} // namespace insula::runtime::agent

#pragma once

namespace insula::runtime::agent {

/// Ports that one answer names.
inline constexpr int max_listed_ports = 1024;

/// Writes what listens for TCP into `channel`, a line for each socket: "PORT ADDRESS PID NAME", the
/// latter "0" and "?" where nobody is found who has it open. Runs in a child of the agent that is
/// still root of the sandbox: to look at what a process has open it becomes the process' user,
/// since root in here has no right to that either. Blocks; the child ends right after it.
void send_ports(int channel);

} // namespace insula::runtime::agent

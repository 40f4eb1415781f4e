#pragma once

namespace insula::runtime::agent {

/// The life of the process that keeps a session's shell: the agent's program, run anew as the
/// sandbox's user, so that nothing of PID 1's memory is in it. argv[1] is the shell. Ends when the
/// shell has ended, or when nobody holds the other end of its channel.
int keep_shell(char** argv);

} // namespace insula::runtime::agent

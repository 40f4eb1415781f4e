#pragma once

namespace insula::runtime::spawner {

/// The kernel has one table for the whole machine of open files, of terminals and of processes'
/// numbers, and as it comes one sandbox, or some, can fill them for all others. Each sandbox has a
/// limit of its own: its memory, 64 terminals, its processes. So this raises the machine's, as
/// systemd does with files and processes at every start, and never lowers one. They stay so when
/// the spawner has ended. Logs what it has done, or why it could not.
void raise_ceilings_of_machine();

} // namespace insula::runtime::spawner

#pragma once

#include "base/unique_fd.hpp"

#include <cstdint>

namespace insula::runtime::spawner {

/// Makes what becomes /dev of a sandbox: a file system in memory, as a mount that is attached
/// nowhere yet. It has null, zero, full, random, urandom and tty, links to what a process has open,
/// directories for terminals and shared memory, and machine-id, to which /etc/machine-id leads: a
/// fresh one. None: errno says why.
///
/// Only root of the machine can make such nodes, so the spawner makes them for each sandbox apart:
/// two sandboxes with the machine's own /dev/null would share its locks, its watches and its times.
///
/// The nodes and the directory are root's of the machine, and the directory is sticky and of the
/// group `root_group`, root's in the sandbox: its root can add files, and can neither change nor
/// remove a device.
unique_fd make_devices(std::uint32_t root_group);

} // namespace insula::runtime::spawner

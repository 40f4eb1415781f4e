#pragma once

#include <array>
#include <cstdint>

namespace insula::runtime::spawner {

/// The devices in /dev of a sandbox. Only root of the machine can make such nodes, so the spawner
/// makes them for each slot apart: two sandboxes with the machine's own /dev/null would share its
/// locks, its watches and its times.
///
/// They are in a file system in memory, `devices` in the spawner's working directory, as
/// `devices/<slot>/<name>`, and owned by root of the sandbox.
inline constexpr std::array device_names{"null", "zero", "full", "random", "urandom", "tty"};
inline constexpr const char* devices_directory = "devices";

/// Makes the file system. False: errno says why; as of the next.
bool prepare_devices();

/// Makes the nodes of a slot, whose root has this id on the machine. What is there already is
/// replaced.
bool make_devices(std::uint32_t slot, std::uint32_t owner);

/// They are not needed any more. That nothing is there is fine.
void remove_devices(std::uint32_t slot);

} // namespace insula::runtime::spawner

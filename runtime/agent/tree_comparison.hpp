#pragma once

#include <cstdint>

namespace insula::runtime::agent {

/// Says what differs between two disks that lie over the image of this sandbox;
/// base/disk_changes.hpp says how. `newer`, `older`: directories with the layers `u`, of /, and
/// `uu`, of /usr. `older` -1: it is the image alone. Called as the sandbox's root.
///
/// Source: Linux, Documentation/filesystems/overlayfs.rst: whiteouts and opaque directories.
void compare_trees(int channel, int newer, int older, const char* after, std::int32_t limit);

} // namespace insula::runtime::agent

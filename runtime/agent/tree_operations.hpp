#pragma once

#include <cstdint>

namespace insula::runtime::agent {

/// Sends the tree below `path`; base/tree_frames.hpp says how, also what `reading` means. Its names
/// are matched as "./name" against the patterns of `excludes` (ends with a null pointer), where
/// wildcards match slashes too; what matches is left out with all below it. FIFOs, sockets and
/// devices are left out. An exact one fails if `path` itself is a mount.
void send_tree(int channel, const char* path, char** excludes, std::int32_t reading);

/// Puts a tree over what there is below `path`, by GNU tar's rules for an ordinary user. `exact`:
/// in place of what there is, with the permissions that it is told; called as root, it becomes the
/// owner of `path`.
void receive_tree(int channel, const char* path, bool exact);

} // namespace insula::runtime::agent

#pragma once

#include <cstdint>

namespace insula::runtime::agent {

/// Sends the tree below `path`; base/tree_frames.hpp says how, also what `reading` means. Its names
/// are matched as "./name" against the patterns of `excludes` (ends with a null pointer), where
/// wildcards match slashes too; what matches is left out with all below it. FIFOs, sockets and
/// devices are left out. An exact one fails if `path` itself is a mount.
void send_tree(int channel, const char* path, char** excludes, std::int32_t reading);

/// Sends what a disk has over its image, as a whole tree. `disk`: a directory with its layers `u`,
/// of /, and `uu`, of /usr. Called as the sandbox's root.
void send_disk(int channel, int disk);

/// How a tree that comes becomes one. `ordinary`: by GNU tar's rules for an ordinary user. `exact`:
/// in place of what there is, with the permissions that it is told; called as root, it becomes the
/// owner of `path`. `whole`: over what there is, as root, with all that a whole tree tells.
enum class tree_writing : std::int32_t { ordinary = 0, exact = 1, whole = 2 };

/// Puts a tree over what there is below `path`.
void receive_tree(int channel, const char* path, tree_writing how);

} // namespace insula::runtime::agent

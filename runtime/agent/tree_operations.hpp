#pragma once

namespace insula::runtime::agent {

/// Sends the tree below `path`; base/tree_frames.hpp says how. Its names are matched as "./name"
/// against the patterns of `excludes` (ends with a null pointer), where wildcards match slashes
/// too; what matches is left out with all below it. FIFOs, sockets and devices are left out.
void send_tree(int channel, const char* path, char** excludes);

/// Puts a tree over what there is below `path`, by GNU tar's rules for an ordinary user; `exact`:
/// with the permissions that it is told.
void receive_tree(int channel, const char* path, bool exact);

} // namespace insula::runtime::agent

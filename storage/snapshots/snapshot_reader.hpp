#pragma once

#include "storage/blobs/blob_store.hpp"
#include "storage/snapshots/manifest.hpp"
#include "storage/snapshots/tree_channel.hpp"

namespace insula::storage::snapshots {

/// Writes the tree of a snapshot to `into`, and waits until it is there. Parts of files that are
/// zeros are left out, and become holes. Errors: store_failed (a piece cannot be had, or is not
/// what the manifest says), and those of tree_channel.
result<void> read_tree(blob_store& blobs, const std::string& space, const manifest& from,
                       tree_channel& into, bool whole);

} // namespace insula::storage::snapshots

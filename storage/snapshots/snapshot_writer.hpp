#pragma once

#include "storage/snapshots/piece_writer.hpp"
#include "storage/snapshots/tree_channel.hpp"

namespace insula::storage::snapshots {

/// Reads a tree to its end and adds it to `into` as a tar archive, which ends with a whole piece.
/// Nothing of what comes is trusted. `unwanted` of `from` ends it. Errors: those of both; io_failed
/// for what is no tree, or cannot be said in tar.
/// `whole`: it is that of a disk. What is known is taken over from the snapshot that `into` knows.
result<void> write_tree(tree_channel& from, piece_writer& into, bool whole);

} // namespace insula::storage::snapshots

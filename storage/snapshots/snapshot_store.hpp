#pragma once

#include "storage/blobs/blob_store.hpp"
#include "storage/snapshots/manifest.hpp"
#include "storage/snapshots/tree_channel.hpp"
#include "storage/store.hpp"

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace insula::storage::snapshots {

/// Snapshots of trees in a blob store. A snapshot counts for nobody before its reference, a line of
/// text, is remembered elsewhere: in the record of what it is of, which is fenced.
///
/// Threads: any; every call waits for disks, networks and sandboxes.
/// Memory:  a few MiB for each call.
/// Errors:  store_failed also for what is there and damaged: digests are verified.
class snapshot_store {
public:
  /// `space`: what all names begin with, so that several can share a store without knowing of each
  /// other. [a-z0-9-]+.
  snapshot_store(blob_store& blobs, std::string space);

  struct ticket {
    std::string owner;
    epoch at = 0;
    std::int64_t taken_ms = 0; ///< Larger than that of any earlier one at the same epoch.
    std::string earlier; ///< A reference, which is remembered until this one is. May be empty.
    bool whole = false;  ///< The tree is a whole one.
  };
  /// Of the tree that comes through `socket`. The reference is good when this has answered.
  result<std::string> take(const ticket& what, int socket, const unwanted_function& unwanted);

  /// To the tree that is written through `socket`. `whole`: what take() was told.
  result<void> put_back(const std::string& reference, int socket, const unwanted_function& unwanted,
                        bool whole = false);

  /// The manifests of `owner` that are older than the one of `newest`; if that is empty, those that
  /// were written at `last` or before. Their pieces go with a sweep.
  result<void> forget(const std::string& owner, epoch last, const std::string& newest);

  struct swept {
    std::size_t manifests = 0, pieces = 0;
  };
  using remembered_function = std::function<result<std::vector<std::string>>()>;
  /// Removes what nobody refers to and is older than limits::snapshot_garbage_age. `remembered`
  /// tells all references that are remembered by now, and is asked a few times. Nothing is removed
  /// if they cannot be had.
  result<swept> sweep(std::int64_t now_ms, const remembered_function& remembered);

private:
  class digest_set;

  static result<void> tell_groups(const manifest& known, tree_channel& to);
  result<manifest> fetch(const reference& which);
  result<std::int64_t> store_time();
  result<std::set<std::string>> names_of(const remembered_function& remembered) const;
  result<digest_set> pieces_of(std::set<std::string> named, const remembered_function& remembered);

  blob_store& blobs_;
  const std::string space_;
};

} // namespace insula::storage::snapshots

#pragma once

#include "storage/etcd/cluster_store.hpp"
#include "storage/etcd/membership.hpp"
#include "storage/etcd/watched_keys.hpp"
#include "storage/store.hpp"

#include <string>
#include <vector>

namespace insula::storage::etcd {

// What a node should own, though nobody asks for it. The tables may be late: that decides nothing,
// since only own() does. Tables of nodes and owners, by name and by id.

/// Owned with this node's lease, and the store does not know: a server before this one has taken
/// it.
std::vector<std::string> not_known_of(const membership& self, const watched_keys& owners,
                                      const cluster_store& store);

/// Of those who have these entries, whom nobody owns, or a node that is gone.
std::vector<std::string> unattended(const std::vector<owned_entry>& entries,
                                    const watched_keys& nodes, const watched_keys& owners);

} // namespace insula::storage::etcd

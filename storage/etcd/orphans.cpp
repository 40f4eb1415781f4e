#include "storage/etcd/orphans.hpp"

#include <set>

namespace insula::storage::etcd {

std::vector<std::string> not_known_of(const membership& self, const watched_keys& owners,
                                      const cluster_store& store) {
  const auto lease = self.lease();
  std::vector<std::string> ids;
  for (const auto& [id, owner] : owners.all())
    if (owner.value == self.self() && owner.lease == lease && !store.knows(id))
      ids.push_back(id);
  return ids;
}

std::vector<std::string> unattended(const std::vector<owned_entry>& entries,
                                    const watched_keys& nodes, const watched_keys& owners) {
  const auto members = nodes.all();
  std::set<std::string> ids;
  for (const auto& each : entries)
    // A node goes before what it owned: they are two tables.
    if (const auto owner = owners.find(each.owner); !owner || !members.contains(owner->value))
      ids.insert(each.owner);
  return {ids.begin(), ids.end()};
}

} // namespace insula::storage::etcd

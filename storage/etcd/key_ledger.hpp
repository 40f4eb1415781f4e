#pragma once

#include "storage/etcd/client.hpp"
#include "storage/etcd/membership.hpp"
#include "storage/key_places.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace insula::storage::etcd {

/// The places of named keys in a cluster: below `keys/<key>/` each has an entry of its own with the
/// lease of the node that has the sandbox, so that what a lost node had counts no more.
/// `keys/<key>` is written with each new place, and only if it is as it was when all places were
/// counted: of two nodes that see the last free place one gets it.
///
/// Threads: any. What is told comes on the client's thread.
/// Owner:   client and membership must outlive it. It does not end on the client's thread.
class key_ledger final : public storage::key_ledger {
public:
  /// `prefix`: as the membership's. `now_us`: microseconds since 1970.
  key_ledger(client& with, const membership& member, std::string prefix,
             std::function<std::int64_t()> now_us);
  ~key_ledger() override;

  void reserve(place_wish wish, key_ceilings most, std::string token,
               std::function<void(result<void>)> then) override;
  void put(place_wish wish, std::string token) override;
  void drop(place_wish wish, std::string token) override;

  /// What the server before this one, on the same lease, had of sandboxes that have ended with it
  /// counts no more. `lives`: an earlier server has left the sandbox running, and this one has not
  /// taken it over yet. On the client's thread. To be called again until nothing is left of it.
  void tidy(std::function<bool(const std::string& sandbox)> lives);

private:
  struct state;
  std::shared_ptr<state> state_;
};

} // namespace insula::storage::etcd

#pragma once

#include "storage/etcd/cluster_store.hpp"
#include "storage/etcd/membership.hpp"
#include "storage/etcd/watched_keys.hpp"
#include "tests/simulation/world.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace insula::simulation {

class history;

/// A machine with a server that comes and goes, in short words what apps/cluster_node does. Its
/// sandboxes are its spawner's: they outlive the server, and run as long as they are permitted to.
/// What the server has for each id is told by whoever derives from this.
class node {
public:
  node(history& in, std::string name);
  /// Whoever derives calls end(false) in its own.
  virtual ~node() = default;

  void start();
  /// `for_good`: its sandboxes end, and its lease is given back.
  void end(bool for_good);
  bool runs() const { return store != nullptr; }
  /// It may have an effect on this id now, whether it moves or not.
  bool may_act(const std::string& id) const {
    return runs() && member->good() && store->is_mine(id);
  }
  /// Its spawner has such a sandbox, and lets it run.
  bool has_running(const std::string& id) const;

  // What clients ask for:
  virtual void use(const std::string& id) = 0;
  /// The one object of this id is made, or answered with.
  virtual void create(const std::string& id) = 0;
  /// Whatever needs no time any more is done.
  virtual void settle() {}

  const std::string name;
  std::unique_ptr<wired_client> client;
  std::unique_ptr<storage::etcd::membership> member;
  std::unique_ptr<storage::etcd::cluster_store> store;
  std::unique_ptr<storage::etcd::watched_keys> nodes, owners;

protected:
  static constexpr auto patience = 5s;
  /// All of these have the marks of alarms.
  static inline const std::string alarm_marks = "s/mark/@alarm";

  // ---- What is done with the ids; the base has joined the cluster, or has left it, before

  /// The server is there. Its spawner may have what the one before has left.
  virtual void begin() = 0;
  /// The server was there before, and is a member again.
  virtual void joined_again() {}
  /// Nothing is its own any more. Told when nothing runs.
  virtual void evict(std::function<void()> gone) = 0;
  /// The server ends, its spawner does not.
  virtual void cease() = 0;
  /// The store it had has gone as well.
  virtual void forget() {}
  virtual bool has_sandbox(const std::string& id) const = 0;
  virtual bool has_sandboxes() const = 0;
  virtual void end_sandboxes() = 0;
  /// Something in the store may have come to be its own.
  virtual void found_alarms() = 0;

  void find_alarms(
    std::function<void(std::vector<storage::owned_entry>)> then,
    std::function<void()> otherwise = [] {});

  history& all_;
  const nanoseconds ahead_; ///< Of its clock.
  /// Counts servers, and evictions: what was asked for before counts no more.
  std::uint64_t life_ = 0;
  bool serving_ = false;

private:
  void serve();
  void lost(std::function<void()> gone);
  void evict_now();
  void look_for_orphans();

  // The machine's:
  storage::etcd::lease_id kept_lease_ = 0;
  nanoseconds permitted_{0};

  // The server's:
  bool has_joined_ = false;
  std::function<void()> gone_; ///< Told once all is evicted.
};

} // namespace insula::simulation

#pragma once

#include "storage/etcd/cluster_store.hpp"
#include "storage/etcd/membership.hpp"
#include "storage/etcd/watched_keys.hpp"
#include "tests/simulation/world.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::simulation {

class history;

/// A machine with a server that comes and goes, in short words what apps/cluster_node and the
/// actors do. Its sandboxes are its spawner's: they outlive the server, and run as long as they are
/// permitted to.
class node {
public:
  node(history& in, std::string name);
  ~node() { end(false); }

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
  void use(const std::string& id);
  /// The one object of this id is made, or answered with.
  void create(const std::string& id);

  const std::string name;
  std::unique_ptr<wired_client> client;
  std::unique_ptr<storage::etcd::membership> member;
  std::unique_ptr<storage::etcd::cluster_store> store;
  std::unique_ptr<storage::etcd::watched_keys> nodes, owners;

private:
  /// The actor of an id, as far as it matters here.
  struct activation {
    storage::epoch held = 0;
    bool asked = false;
    bool making = false;
    std::string object; ///< Of its record, once that is known.
  };
  /// What was stored for it, and when it is due.
  struct alarm {
    std::string record;
    nanoseconds due;
    std::uint64_t number;
  };
  static std::optional<alarm> parse(const std::string& record);

  void serve();
  void lost(std::function<void()> gone);
  void evict();
  void hold(const std::string& id, std::function<void(storage::epoch)> then);
  void sleep(const std::string& id);
  void act(const std::string& id, storage::epoch held);
  void write(const std::string& id, storage::epoch held);

  void tick();
  void reread();
  void ring(const std::string& id, const alarm& what);
  void look_for_orphans();
  void find_alarms(std::function<void(std::vector<storage::owned_entry>)> then);

  history& all_;
  const nanoseconds ahead_; ///< Of its clock.

  // The machine's:
  storage::etcd::lease_id kept_lease_ = 0;
  std::map<std::string, storage::epoch> running_;
  nanoseconds permitted_{0};

  // The server's:
  std::uint64_t life_ =
    0; ///< Counts servers, and evictions: what was asked for before counts no more.
  std::uint64_t server_ = 0;
  bool serving_ = false;
  bool has_joined_ = false;
  bool reread_asked_ = false;
  std::function<void()> gone_; ///< Told once all is evicted.
  std::map<std::string, activation> live_;
  std::map<std::string, alarm> alarms_;
};

} // namespace insula::simulation

#pragma once

#include "actors/figures.hpp"
#include "actors/image_catalogue.hpp"
#include "actors/instance_count.hpp"
#include "actors/object.hpp"
#include "actors/object_link.hpp"
#include "actors/object_routes.hpp"
#include "actors/owned_object.hpp"
#include "actors/pool.hpp"
#include "actors/protocol/interfaces.hpp"
#include "actors/sandbox/lifecycle.hpp"
#include "actors/sandbox_groups.hpp"
#include "actors/sandbox_metadata.hpp"
#include "actors/snapshot_archive.hpp"
#include "actors/snapshots/copies.hpp"
#include "actors/snapshots/disk_helpers.hpp"
#include "base/bucket.hpp"
#include "base/byte_budget.hpp"
#include "base/clock.hpp"
#include "base/id.hpp"
#include "base/limits.hpp"
#include "runtime/engine.hpp"
#include "runtime/kept_logs.hpp"
#include "storage/key_places.hpp"
#include "storage/lease.hpp"

#include <caf/fwd.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace insula {

/// A sandbox as its node sees it.
using sandbox_object_actor = sandbox_actor::extend_with<owned_object_actor>;

namespace actors {

/// What every sandbox of a node is made with. Nothing here is owned but what is shared; all
/// outlives the actor system.
struct sandbox_options {
  runtime::engine* engine = nullptr;
  storage::lease_service* leases = nullptr;
  const clock* time = nullptr;
  std::int64_t served_since_ms = 0; ///< Unix time: what is older was asked of an earlier server.
  std::shared_ptr<const keepers> keep;
  std::shared_ptr<object_link> objects = std::make_shared<object_link>(); ///< The other ones.
  std::shared_ptr<instance_count> instances;
  storage::key_places* key_places = nullptr; ///< Null: no API key has a name.
  /// Sandboxes of the server before count for their keys once they are taken over: until then, or
  /// until this time of clock::now(), starts of keys with ceilings wait.
  std::chrono::steady_clock::time_point survivors_until{};
  node_pool_actor pool;               ///< Where warm ones are. None: there are none.
  std::string engine_name = "native"; ///< Which of them fit.
  bucket_settings buckets;
  egress_policy network;           ///< Of one for which nobody has said another.
  std::string image_name = "host"; ///< Of sandboxes that are new; later it stands in their record.
  std::shared_ptr<image_catalogue> images = std::make_shared<image_catalogue>();
  image_supply* supply = nullptr; ///< Null: an image that is not here is not to be had.
  runtime::sandbox_limits limits;
  sandbox_profile profile; ///< Of one for which no other was said. Its privileges: of a new one.
  bool allow_sudo = true;  ///< If not, none gets the privileges `sudo`, and none with them starts.
  /// In a cluster: does this node own the id? Any thread, quick. None: it owns all.
  std::function<bool(const std::string& id)> ours = {};
  std::function<std::uint64_t(const std::string& owner)> tenure = {}; ///< As of keepers.
  /// In a cluster: where the other nodes' objects are. Null: there are no others.
  object_routes* routes = nullptr;
  /// This node was in no cluster before: bytes without a record here may have one there, and stay.
  bool was_alone = false;
  /// Whose lists a sandbox is in. None: there are no groups.
  group_rule groups = {};
  /// What people read of a sandbox. None: nothing.
  caption_rule captions = {};
  /// Each sandbox has an authority of its own from its first start on, and not only with its first
  /// rules about requests.
  bool authority_always = false;
  /// Who it is to places to which rules about requests forward. None: nobody.
  claims_rule claims = {};
  /// What a snapshot of that sandbox is called which no client has named. None: as nobody guesses.
  std::function<std::string(const std::string& sandbox)> snapshot_names = {};
  /// What becomes of the disks of a sandbox's runs. None: nothing is kept that no client asks for.
  run_disk_rule run_disks = {};
  /// What a run may use that is not the first. None: what the sandbox was defined with.
  run_limits_rule run_limits = {};
  idle_ladder ladder; ///< For one in which nothing runs and of which nothing is asked.
  snapshot_archive* files =
    nullptr; ///< What an earlier version kept of files. Null: nothing is there.
  /// Where copies of whole disks go. Null: nowhere.
  std::shared_ptr<snapshots::disk_copies> copies;
  /// A snapshot of a whole disk is acknowledged once it has a copy. Else that is made later.
  bool acknowledges_copies = false;
  /// Sandboxes may be persistent: their disks are kept in snapshots of the engine's, and those have
  /// copies, if there is a place for copies.
  bool keeps_disks = false;
  /// What looks at disks. Null: nothing does, and disks are not compared.
  std::shared_ptr<snapshots::disk_helpers> disk_helpers;
  /// Where logs of commands go whose run is over. Null: they end with it.
  runtime::kept_logs* logs = nullptr;
  std::chrono::milliseconds keep_interval{0}; ///< Between snapshots of one in use. 0: none.
  bool all_persistent = false;                ///< Whether anybody has asked for it or not.
  std::shared_ptr<actors::figures> figures = std::make_shared<actors::figures>();
  /// Set before the node ends all of its sandboxes: then their ends are no news.
  std::shared_ptr<std::atomic<bool>> node_ends = std::make_shared<std::atomic<bool>>(false);
  /// For what commands say that wait, of all sandboxes together.
  std::shared_ptr<byte_budget> waiting_bytes =
    std::make_shared<byte_budget>(limits::waiting_node_bytes);

  std::string new_snapshot_of(const std::string& sandbox) const {
    return snapshot_names ? snapshot_names(sandbox) : sandbox_id::generate().str();
  }

  /// Snapshots of disks: in a cluster any node has to come by the bytes.
  bool keeps_snapshots() const { return !ours || copies != nullptr; }
};

/// The object of one id: made on first use, it starts its sandbox when something needs it, keeps
/// its record in the store, and stops it when it is idle. The handle is good until delete_atom is
/// answered. `hibernates`: it also ends, in silence, when nothing runs and nobody waits; the next
/// activation finds everything in the store. Who is told request_receiver_down then makes that.
sandbox_object_actor spawn_sandbox(caf::actor_system& system, sandbox_id id,
                                   std::shared_ptr<const sandbox_options> options,
                                   bool hibernates = false);

} // namespace actors
} // namespace insula

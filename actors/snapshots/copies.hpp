#pragma once

#include "actors/image_catalogue.hpp"
#include "actors/snapshot_archive.hpp"
#include "base/limits.hpp"
#include "runtime/engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace insula::actors::snapshots {

/// Whole disks of snapshots, in a place that outlives their node. A sandbox of the node's own reads
/// and writes the files, as disk_helpers has it, one for each job.
///
/// Threads: any. Owner: each job keeps it until the answer; the engine and `files` outlive it.
class disk_copies : public std::enable_shared_from_this<disk_copies> {
public:
  struct cache_settings {
    /// Does this node own the snapshot's object? Else its bytes are a copy of what others have.
    /// None: it owns all.
    std::function<bool(const std::string& id)> owns = {};
    std::uint64_t bytes = 0; ///< So much of other nodes' stays on this one's disk.
    /// After its last use one stays so long all the same: a sandbox may be about to begin with it.
    std::chrono::seconds at_least = limits::snapshot_cached_at_least;
  };

  disk_copies(runtime::engine& of, snapshot_archive& files, cache_settings cache)
      : engine_(of)
      , files_(files)
      , cache_(std::move(cache)) {}

  struct keep_request {
    std::string id;           ///< Of the snapshot.
    shared_image image;       ///< That it lies over.
    storage::epoch epoch = 0; ///< This, and the next two: as of snapshot_archive::keep_request.
    std::int64_t taken_ms = 0;
    snapshot_reference earlier;
    std::shared_ptr<work_token> token;
    bool waited_for = false; ///< As of snapshot_archive::keep_request.
  };
  /// `then` is called once, on any thread. Errors: those of snapshot_archive::keep() and of
  /// engine::create(); not_found (the engine has no such snapshot); deadline_exceeded.
  void keep(const keep_request& what, std::function<void(result<snapshot_reference>)> then);

  struct bring_request {
    std::string id;
    shared_image image;
    snapshot_reference from;
    std::uint64_t disk_bytes = 0; ///< At most so large its disk becomes; 0: there is no limit.
    std::shared_ptr<work_token> token;
    std::uint64_t bytes = 0; ///< That the snapshot has.
  };
  /// The engine has the snapshot then, as if it had never been without. Several that want the same
  /// one wait for one job, which ends when all of them have cancelled. `then` is called once, on
  /// any thread. Errors: those of snapshot_archive::put_back(), engine::create() and
  /// sandbox::take_snapshot(); store_failed also when as many are brought as may be.
  void bring(const bring_request& what, std::function<void(result<void>)> then);

  /// The snapshot has been deleted: what is on its way is not to stay.
  void abandon(const std::string& id);

  /// A sandbox begins with it here.
  void note_use(const std::string& id);
  /// The engine has these bytes, and there is a copy of them: they may go when others need the
  /// room.
  void note_cached(const std::string& id, std::uint64_t bytes);

  /// Nobody is asked from now on which snapshots are this node's: none goes to make room.
  void end();

  /// As snapshot_archive::forget(), of the copies of a snapshot.
  void forget(const std::string& id, storage::epoch last, const snapshot_reference& newest);

private:
  struct bringing {
    bring_request what;
    std::vector<std::pair<std::shared_ptr<work_token>, std::function<void(result<void>)>>> waiting;
    bool abandoned = false;

    bool is_wanted() const;
  };

  void look(const std::string& id);
  void fetch(const bring_request& what);
  /// `anew`: the engine has it only now.
  void brought(const std::string& id, const result<void>& back, bool anew);
  void dropped(const std::string& id);
  bool is_wanted(const std::string& id);
  std::vector<std::string> take_unneeded();

  struct cached {
    std::uint64_t bytes = 0;
    std::chrono::steady_clock::time_point used;
  };

  runtime::engine& engine_;
  snapshot_archive& files_;
  const cache_settings cache_;
  std::mutex guard_; ///< For what follows.
  std::map<std::string, bringing> bringing_;
  std::map<std::string, cached> cached_;
  bool ended_ = false;
};

/// For bring_request::disk_bytes: of a snapshot of so many bytes, where a new sandbox may have
/// `most`; 0: there is no limit. Files that shared their bytes on the disk do so no more.
constexpr std::uint64_t brought_disk_bytes(std::uint64_t bytes, std::uint64_t most) {
  return most == 0 ? 0 : std::max(most, 8 * bytes);
}

} // namespace insula::actors::snapshots

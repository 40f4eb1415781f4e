#pragma once

#include "actors/workspaces.hpp"
#include "apps/config.hpp"
#include "base/clock.hpp"
#include "base/metrics.hpp"
#include "storage/blobs/blob_store.hpp"
#include "storage/snapshots/snapshot_store.hpp"
#include "storage/store.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace insula {

/// Where the configuration says that snapshots go. While privileges are there: a directory is made
/// if it is missing, and given to `owner`, as an empty one of root's is. Null: nowhere.
result<std::unique_ptr<storage::blob_store>> open_blobs(const snapshot_config& from,
                                                        std::uint32_t owner);

/// Snapshots of workspaces in a blob store, by a few threads of its own, which wait for disks,
/// networks and sandboxes. One more only puts back: somebody waits for that, however long the
/// others take. Others write whole disks and put those back. And one removes what is garbage, now
/// and then.
class workspace_snapshots final : public actors::workspaces {
public:
  /// `cluster`: the store with the sandboxes' records; both it and `time` outlive this. `space`: as
  /// of storage::snapshots::snapshot_store.
  workspace_snapshots(std::unique_ptr<storage::blob_store> blobs, std::string space,
                      storage::store& cluster, const clock& time);
  ~workspace_snapshots() override;
  workspace_snapshots(const workspace_snapshots&) = delete;
  workspace_snapshots& operator=(const workspace_snapshots&) = delete;

  void keep(keep_request what,
            std::function<void(result<actors::snapshot_reference>)> on_kept) override;
  void put_back(put_back_request what, std::function<void(result<void>)> on_back) override;
  void forget(const std::string& sandbox, storage::epoch last,
              const actors::snapshot_reference& newest) override;

  /// What is on its way ends, without an answer if need be; nothing begins any more.
  void end();

  void write(metrics::text& into) const;

private:
  using job = std::function<void()>;

  void add(std::deque<job>& to, job what);
  bool is_full();
  /// The first of them that has something, for as long as this lives.
  void work(const std::vector<std::deque<job>*>& queues);
  void sweep_now_and_then();
  void sweep();

  const std::unique_ptr<storage::blob_store> blobs_;
  storage::snapshots::snapshot_store snapshots_;
  storage::store& cluster_;
  const clock& time_;
  std::mutex guard_;
  std::condition_variable news_;   ///< For the workers: there is a job, or the end.
  std::condition_variable ending_; ///< For the one that sweeps.
  std::deque<job> urgent_;         ///< Somebody waits for these.
  std::deque<job> others_;
  /// Whole disks. One of the threads that keep them takes those that nobody waits for, too.
  std::deque<job> whole_urgent_, whole_kept_, whole_put_back_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
  metrics::counter kept_, not_kept_, put_back_, not_put_back_, swept_;
  metrics::histogram keep_time_, put_back_time_;
};

} // namespace insula

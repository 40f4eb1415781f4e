#pragma once

#include "actors/snapshot_archive.hpp"
#include "apps/config.hpp"
#include "base/clock.hpp"
#include "base/metrics.hpp"
#include "storage/blobs/blob_store.hpp"
#include "storage/snapshots/snapshot_store.hpp"
#include "storage/store.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <initializer_list>
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

/// Snapshots in a blob store, by a few threads of its own, which wait for disks, networks and
/// sandboxes: some write, and one of these what nobody waits for too; some put back; one forgets;
/// and one removes what is garbage, now and then.
class blob_snapshot_archive final : public actors::snapshot_archive {
public:
  /// `cluster`: the store with the sandboxes' records; both it and `time` outlive this. `space`: as
  /// of storage::snapshots::snapshot_store.
  blob_snapshot_archive(std::unique_ptr<storage::blob_store> blobs, std::string space,
                        storage::store& cluster, const clock& time);
  ~blob_snapshot_archive() override;
  blob_snapshot_archive(const blob_snapshot_archive&) = delete;
  blob_snapshot_archive& operator=(const blob_snapshot_archive&) = delete;

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
  bool is_full(std::initializer_list<const std::deque<job>*> queues);
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
  std::deque<job> waited_for_, kept_in_time_, put_back_jobs_, forgotten_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
  metrics::counter kept_, not_kept_, put_back_, not_put_back_, swept_;
  metrics::histogram keep_time_, put_back_time_;
};

} // namespace insula

#include "apps/blob_snapshot_archive.hpp"

#include "actors/record_keys.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "storage/blobs/directory_blobs.hpp"
#include "storage/blobs/s3_blobs.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace insula {

namespace {

using steady = std::chrono::steady_clock;

const error ending{errc::sandbox_not_running, "the node is going down"};

} // namespace

result<std::unique_ptr<storage::blob_store>> open_blobs(const snapshot_config& from,
                                                        std::uint32_t owner) {
  if (!from.endpoint.empty()) {
    if (!from.credentials)
      return error{errc::invalid_request,
                   "snapshots.endpoint: expected SNAPSHOTS_ACCESS_KEY_ID and "
                   "SNAPSHOTS_SECRET_ACCESS_KEY in the environment"};
    storage::s3_settings settings;
    settings.endpoint = from.endpoint;
    settings.bucket = from.bucket;
    settings.region = from.region;
    settings.credentials = *from.credentials;
    return std::unique_ptr<storage::blob_store>{
      std::make_unique<storage::s3_blobs>(std::move(settings))};
  }
  if (from.directory.empty())
    return std::unique_ptr<storage::blob_store>{};
  const auto bad = [&from](const std::string& why) {
    return error{errc::io_failed, "snapshots.directory: " + from.directory + ": " + why};
  };
  std::error_code refused;
  std::filesystem::create_directories(from.directory, refused);
  unique_fd directory{::open(from.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  struct stat is {};
  if (!directory || ::fstat(directory.get(), &is) != 0)
    return bad(std::strerror(errno));
  // One that somebody else has is shared by other means, and stays whose it is.
  if (is.st_uid == 0 && owner != 0) {
    if (!std::filesystem::is_empty(from.directory, refused) || refused)
      return bad("it is root's and has something in it: name an empty one, or give it to the "
                 "user of the server");
    if (::fchown(directory.get(), owner, owner) != 0 || ::fchmod(directory.get(), 0700) != 0)
      return bad(std::strerror(errno));
  }
  return std::unique_ptr<storage::blob_store>{
    std::make_unique<storage::directory_blobs>(std::move(directory), from.directory)};
}

blob_snapshot_archive::blob_snapshot_archive(std::unique_ptr<storage::blob_store> blobs,
                                             std::string space, storage::store& cluster,
                                             const clock& time)
    : blobs_(std::move(blobs))
    , snapshots_(*blobs_, std::move(space))
    , cluster_(cluster)
    , time_(time) {
  threads_.emplace_back([this] { work({&waited_for_, &kept_in_time_}); });
  for (std::size_t i = 1; i < limits::snapshot_writers; ++i)
    threads_.emplace_back([this] { work({&waited_for_}); });
  for (std::size_t i = 0; i < limits::snapshot_readers; ++i)
    threads_.emplace_back([this] { work({&put_back_jobs_}); });
  threads_.emplace_back([this] { work({&forgotten_}); });
  threads_.emplace_back([this] { sweep_now_and_then(); });
}

blob_snapshot_archive::~blob_snapshot_archive() {
  end();
}

void blob_snapshot_archive::end() {
  {
    const std::lock_guard hold{guard_};
    if (std::exchange(ended_, true))
      return;
  }
  blobs_->close();
  news_.notify_all();
  ending_.notify_all();
  for (auto& each : threads_)
    each.join();
}

void blob_snapshot_archive::add(std::deque<job>& to, job what) {
  {
    const std::lock_guard hold{guard_};
    to.push_back(std::move(what));
  }
  news_.notify_all(); // One alone may be the one that does not take it.
}

bool blob_snapshot_archive::is_full(std::initializer_list<const std::deque<job>*> queues) {
  const std::lock_guard hold{guard_};
  std::size_t waiting = 0;
  for (const auto* each : queues)
    waiting += each->size();
  return waiting >= limits::snapshot_jobs_waiting;
}

void blob_snapshot_archive::work(const std::vector<std::deque<job>*>& queues) {
  const auto first = [&] {
    return std::find_if(queues.begin(), queues.end(),
                        [](const auto* each) { return !each->empty(); });
  };
  std::unique_lock hold{guard_};
  while (true) {
    news_.wait(hold, [&] { return ended_ || first() != queues.end(); });
    const auto from = first();
    if (from == queues.end())
      return;
    auto what = std::move((*from)->front());
    (*from)->pop_front();
    hold.unlock();
    what();         // After the end, too: whoever has asked is told, by a store that is closed.
    what = nullptr; // What it has goes without the guard: others may answer with that.
    hold.lock();
  }
}

void blob_snapshot_archive::keep(keep_request what,
                                 std::function<void(result<actors::snapshot_reference>)> on_kept) {
  if (is_full({&waited_for_, &kept_in_time_}))
    return on_kept(error{errc::capacity_exceeded, "as many disks wait to be copied as may"});
  auto& queue = what.waited_for ? waited_for_ : kept_in_time_;
  add(queue, [this, what = std::move(what), on_kept = std::move(on_kept)] {
    const auto began = steady::now();
    const auto unwanted = [&] {
      const std::lock_guard hold{guard_};
      return ended_ || what.token->cancelled();
    };
    const auto make = [&]() -> result<std::string> {
      if (unwanted())
        return ending;
      const auto tree = what.open();
      if (!tree)
        return tree.reason();
      return snapshots_.take({what.sandbox, what.epoch, what.taken_ms, what.earlier, true},
                             tree->get(), unwanted);
    };
    auto made = make();
    (made ? kept_ : not_kept_).add();
    if (made)
      keep_time_.observe(steady::now() - began);
    on_kept(std::move(made));
  });
}

void blob_snapshot_archive::put_back(put_back_request what,
                                     std::function<void(result<void>)> on_back) {
  add(put_back_jobs_, [this, what = std::move(what), on_back = std::move(on_back)] {
    const auto began = steady::now();
    const auto unwanted = [&] {
      const std::lock_guard hold{guard_};
      return ended_ || what.token->cancelled();
    };
    const auto make = [&]() -> result<void> {
      if (unwanted())
        return ending;
      const auto tree = what.open();
      if (!tree)
        return tree.reason();
      return snapshots_.put_back(what.from, tree->get(), unwanted, what.whole);
    };
    auto made = make();
    (made ? put_back_ : not_put_back_).add();
    if (made)
      put_back_time_.observe(steady::now() - began);
    on_back(std::move(made));
  });
}

void blob_snapshot_archive::forget(const std::string& sandbox, storage::epoch last,
                                   const actors::snapshot_reference& newest) {
  if (is_full({&forgotten_}))
    return; // It is garbage some day.
  add(forgotten_, [this, sandbox, last, newest] {
    if (const auto gone = snapshots_.forget(sandbox, last, newest);
        !gone && gone.reason().code != errc::sandbox_not_running)
      log::warning("snapshots.not_forgotten", {{"id", sandbox}, {"reason", gone.reason().message}});
  });
}

// ---- Garbage

void blob_snapshot_archive::sweep_now_and_then() {
  std::unique_lock hold{guard_};
  // Not all nodes at the same time as their first requests.
  for (std::chrono::milliseconds pause = std::chrono::minutes{5};;
       pause = limits::snapshot_sweep_pause) {
    if (ending_.wait_for(hold, pause, [this] { return ended_; }))
      return;
    hold.unlock();
    sweep();
    hold.lock();
  }
}

void blob_snapshot_archive::sweep() {
  // Twice: what comes in place of another one while the records are read may be in a part that was
  // read before, and the other one in a part that is read after.
  const auto remembered = [this]() -> result<std::vector<std::string>> {
    std::vector<std::string> all;
    for (int i = 0; i < 2; ++i) {
      const auto found = cluster_.find(actors::snapshot_key);
      if (!found)
        return found.reason();
      for (const auto& each : *found)
        if (each.key == actors::snapshot_key)
          all.push_back(each.value.substr(each.value.find(' ') + 1));
    }
    return all;
  };
  const auto gone = snapshots_.sweep(time_.unix_ms(), remembered);
  if (!gone)
    return log::warning("snapshots.not_swept", {{"reason", gone.reason().message}});
  swept_.add(gone->pieces);
  if (gone->manifests + gone->pieces > 0)
    log::info("snapshots.swept", {{"snapshots", gone->manifests}, {"pieces", gone->pieces}});
}

void blob_snapshot_archive::write(metrics::text& into) const {
  using metrics::kind;
  into.single("insula_snapshots_kept_total", kind::counter,
              "Snapshots that were written to the place of snapshots.", kept_);
  into.single("insula_snapshots_not_kept_total", kind::counter,
              "Snapshots that could not be written there.", not_kept_);
  into.single("insula_snapshots_put_back_total", kind::counter,
              "Snapshots that were put back from there.", put_back_);
  into.single("insula_snapshots_not_put_back_total", kind::counter, "Those that could not.",
              not_put_back_);
  into.single("insula_snapshot_keep_seconds", kind::histogram, "What it took to write one.",
              keep_time_);
  into.single("insula_snapshot_put_back_seconds", kind::histogram, "What it took to put one back.",
              put_back_time_);
  into.single("insula_snapshots_swept_pieces_total", kind::counter,
              "Pieces of snapshots that were removed because nothing referred to them.", swept_);
}

} // namespace insula

#include "actors/snapshots/copies.hpp"

#include "actors/snapshots/disk_helpers.hpp"
#include "base/limits.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

namespace insula::actors::snapshots {

namespace {

/// The answer to one question, for a thread that waits for it.
template <class T>
class awaited {
public:
  /// False: nobody waits any more.
  bool give(result<T>& answer) {
    const std::lock_guard hold{guard_};
    if (over_)
      return false;
    answer_ = std::move(answer);
    news_.notify_one();
    return true;
  }
  result<T> take() {
    std::unique_lock hold{guard_};
    news_.wait_for(hold, limits::copy_helper_patience, [this] { return answer_.has_value(); });
    over_ = true;
    if (!answer_)
      return error{errc::deadline_exceeded, "the sandbox that reads and writes disks is late"};
    return std::move(*answer_);
  }

private:
  std::mutex guard_;
  std::condition_variable news_;
  std::optional<result<T>> answer_;
  bool over_ = false;
};

using sandbox_handle = std::shared_ptr<runtime::sandbox>;

/// One sandbox of the node's own, which ends with this.
class helper {
public:
  helper() = default;
  helper(const helper&) = delete;
  helper& operator=(const helper&) = delete;
  ~helper() {
    if (it_)
      it_->destroy([it = it_] {}); // Its engine wants it to live until then.
  }

  /// Waits.
  result<void> make(runtime::engine& engine, runtime::sandbox_spec spec) {
    const auto made = std::make_shared<awaited<sandbox_handle>>();
    runtime::sandbox_listener heard;
    heard.on_ready = [made](const sandbox_handle& it) {
      result<sandbox_handle> answer{it};
      if (!made->give(answer))
        it->destroy([it] {});
    };
    heard.on_failed = [made](const error& why) {
      result<sandbox_handle> answer{why};
      made->give(answer);
    };
    heard.on_ended = [] {}; // What is under way in it says so.
    engine.create(std::move(spec), std::move(heard));
    auto answer = made->take();
    if (!answer)
      return answer.reason();
    it_ = std::move(*answer);
    return {};
  }
  runtime::sandbox& operator*() const { return *it_; }

private:
  sandbox_handle it_;
};

} // namespace

std::string copies_of(const std::string& id) {
  return "disk-" + id;
}

void keep_copy(runtime::engine& engine, workspaces& files, const disk_copy& of,
               storage::epoch epoch, std::int64_t taken_ms, const snapshot_reference& earlier,
               std::function<void(result<snapshot_reference>)> then) {
  const auto in = std::make_shared<helper>();
  const auto open = [&engine, of, in]() -> result<unique_fd> {
    if (const auto made = in->make(engine, helper_spec(*of.image)); !made)
      return made.reason();
    const auto disk = std::make_shared<awaited<unique_fd>>();
    (**in).open_disk(of.id, [disk](result<unique_fd> opened) { disk->give(opened); });
    return disk->take();
  };
  files.keep(
    {copies_of(of.id), epoch, taken_ms, earlier, open, of.token, true},
    [in, then = std::move(then)](result<snapshot_reference> kept) { then(std::move(kept)); });
}

void bring_copy(runtime::engine& engine, workspaces& files, const disk_copy& of,
                const snapshot_reference& from, std::uint64_t disk_bytes,
                std::function<void(result<void>)> then) {
  const auto in = std::make_shared<helper>();
  const auto open = [&engine, of, disk_bytes, in]() -> result<unique_fd> {
    if (const auto made = in->make(engine, helper_spec(*of.image, disk_bytes)); !made)
      return made.reason();
    return (**in).open_tree({.what = runtime::file_operation::write, .path = "/", .whole = true},
                            {0, 0});
  };
  files.put_back({copies_of(of.id), from, open, of.token, true},
                 [in, id = of.id, then = std::move(then)](const result<void>& back) {
                   if (!back)
                     return then(back);
                   (**in).take_snapshot(id, [in, then](const result<runtime::disk_snapshot>& made) {
                     // An earlier server may have had no time to say so.
                     const bool there = made || made.reason().code == errc::already_exists;
                     then(there ? result<void>{} : made.reason());
                   });
                 });
}

} // namespace insula::actors::snapshots

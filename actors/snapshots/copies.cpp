#include "actors/snapshots/copies.hpp"

#include "actors/snapshots/disk_helpers.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <future>
#include <optional>

namespace insula::actors::snapshots {

namespace {

const error ending{errc::sandbox_not_running, "the node is going down"};

/// Tells what it is given, once; if it is let go of before, that the node ends.
template <class T>
class told_once {
public:
  explicit told_once(std::function<void(T)> to)
      : to_(std::move(to)) {}
  told_once(const told_once&) = delete;
  told_once& operator=(const told_once&) = delete;
  ~told_once() {
    if (to_)
      to_(T{ending});
  }
  void give(T what) {
    if (const auto to = std::exchange(to_, nullptr))
      to(std::move(what));
  }

private:
  std::function<void(T)> to_;
};

/// Waits for an answer of the engine's, until nobody wants it.
template <class T>
result<T> wait_for(std::future<result<T>> answer, const work_token& token) {
  const auto until = std::chrono::steady_clock::now() + limits::copy_helper_patience;
  while (answer.wait_for(limits::snapshot_glance) != std::future_status::ready)
    if (token.cancelled() || std::chrono::steady_clock::now() > until)
      return error{errc::deadline_exceeded, "the sandbox that reads and writes disks is late"};
  try {
    return answer.get();
  } catch (const std::future_error&) { // It was let go of without an answer.
    return ending;
  }
}

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

  /// Waits, at most for as long as the engine takes to make one.
  result<void> make(runtime::engine& engine, runtime::sandbox_spec spec) {
    const auto made = std::make_shared<std::promise<result<sandbox_handle>>>();
    auto answer = made->get_future();
    runtime::sandbox_listener heard;
    heard.on_ready = [made](const sandbox_handle& it) { made->set_value(it); };
    heard.on_failed = [made](const error& why) { made->set_value(why); };
    heard.on_ended = [] {}; // What is under way in it says so.
    engine.create(std::move(spec), std::move(heard));
    try {
      auto got = answer.get();
      if (!got)
        return got.reason();
      it_ = std::move(*got);
      return {};
    } catch (const std::future_error&) {
      return ending;
    }
  }
  runtime::sandbox& operator*() const { return *it_; }

private:
  sandbox_handle it_;
};

/// In place of a sandbox, in what the archive is asked. No sandbox is called so.
std::string owner_of(const std::string& id) {
  return "disk-" + id;
}

} // namespace

void disk_copies::keep(const keep_request& what,
                       std::function<void(result<snapshot_reference>)> then) {
  const auto in = std::make_shared<helper>();
  const auto open = [self = shared_from_this(), what, in]() -> result<unique_fd> {
    if (const auto made = in->make(self->engine_, helper_spec(*what.image)); !made)
      return made.reason();
    const auto disk = std::make_shared<std::promise<result<unique_fd>>>();
    auto answer = disk->get_future();
    (**in).open_disk(what.id,
                     [disk](result<unique_fd> opened) { disk->set_value(std::move(opened)); });
    return wait_for(std::move(answer), *what.token);
  };
  const auto tell = std::make_shared<told_once<result<snapshot_reference>>>(std::move(then));
  files_.keep(
    {owner_of(what.id), what.epoch, what.taken_ms, what.earlier, open, what.token, what.waited_for},
    [in, tell](result<snapshot_reference> kept) { tell->give(std::move(kept)); });
}

void disk_copies::forget(const std::string& id, storage::epoch last,
                         const snapshot_reference& newest) {
  files_.forget(owner_of(id), last, newest);
}

// ---- Back to the node

void disk_copies::bring(const bring_request& what, std::function<void(result<void>)> then) {
  {
    const std::lock_guard hold{guard_};
    if (const auto at = bringing_.find(what.id); at != bringing_.end())
      return at->second.waiting.emplace_back(what.token, std::move(then)), void();
    if (bringing_.size() < limits::snapshots_brought_at_once) {
      bringing_[what.id] = {what, {{what.token, std::move(then)}}};
      then = nullptr;
    }
  }
  if (then)
    return then(error{errc::store_failed, "as many snapshots are brought to this node as may",
                      limits::brought_again_s});
  look(what.id);
}

bool disk_copies::bringing::is_wanted() const {
  return !abandoned && std::any_of(waiting.begin(), waiting.end(),
                                   [](const auto& each) { return !each.first->cancelled(); });
}

void disk_copies::abandon(const std::string& id) {
  const std::lock_guard hold{guard_};
  if (const auto at = bringing_.find(id); at != bringing_.end())
    at->second.abandoned = true;
}

bool disk_copies::is_wanted(const std::string& id) {
  const std::lock_guard hold{guard_};
  const auto at = bringing_.find(id);
  return at != bringing_.end() && at->second.is_wanted();
}

/// Someone may have brought it meanwhile.
void disk_copies::look(const std::string& id) {
  const auto tell = std::make_shared<told_once<result<std::vector<std::string>>>>(
    [self = shared_from_this(), id](const result<std::vector<std::string>>& all) {
      if (!all)
        return self->brought(id, all.reason(), false);
      if (std::find(all->begin(), all->end(), id) != all->end())
        return self->brought(id, {}, false);
      std::optional<bring_request> what;
      {
        const std::lock_guard hold{self->guard_};
        what = self->bringing_.at(id).what;
      }
      self->fetch(*what);
    });
  engine_.list_snapshots(
    [tell](result<std::vector<std::string>> all) { tell->give(std::move(all)); });
}

void disk_copies::fetch(const bring_request& what) {
  /// Of all that wait for it.
  class shared_token final : public work_token {
  public:
    shared_token(std::shared_ptr<disk_copies> of, std::string id)
        : of_(std::move(of))
        , id_(std::move(id)) {}
    bool cancelled() const override { return !of_->is_wanted(id_); }

  private:
    const std::shared_ptr<disk_copies> of_;
    const std::string id_;
  };
  const auto in = std::make_shared<helper>();
  const auto tell = std::make_shared<told_once<result<void>>>(
    [self = shared_from_this(), id = what.id](const result<void>& back) {
      self->brought(id, back, true);
    });
  const auto open = [self = shared_from_this(), what, in]() -> result<unique_fd> {
    if (const auto made = in->make(self->engine_, helper_spec(*what.image, what.disk_bytes)); !made)
      return made.reason();
    return (**in).open_tree({.what = runtime::file_operation::write, .path = "/", .whole = true},
                            {0, 0});
  };
  files_.put_back({owner_of(what.id), what.from, open,
                   std::make_shared<shared_token>(shared_from_this(), what.id), true},
                  [in, tell, id = what.id](const result<void>& back) {
                    if (!back)
                      return tell->give(back);
                    (**in).take_snapshot(id,
                                         [in, tell](const result<runtime::disk_snapshot>& made) {
                                           tell->give(made ? result<void>{} : made.reason());
                                         });
                  });
}

// ---- What is here of other nodes' snapshots

void disk_copies::note_use(const std::string& id) {
  const std::lock_guard hold{guard_};
  if (const auto at = cached_.find(id); at != cached_.end())
    at->second.used = std::chrono::steady_clock::now();
}

void disk_copies::note_cached(const std::string& id, std::uint64_t bytes) {
  if (!cache_.owns)
    return;
  std::vector<std::string> unneeded;
  {
    const std::lock_guard hold{guard_};
    cached_[id] = {bytes, std::chrono::steady_clock::now()};
    unneeded = take_unneeded();
  }
  for (const auto& each : unneeded) {
    log::info("snapshot.uncached", {{"id", each}});
    engine_.drop_snapshot(each, [](const result<void>&) {});
  }
}

void disk_copies::end() {
  const std::lock_guard hold{guard_};
  ended_ = true;
}

/// Those that were used last stay. A sandbox that runs needs its one no more.
std::vector<std::string> disk_copies::take_unneeded() {
  if (ended_)
    return {};
  std::vector<std::pair<std::chrono::steady_clock::time_point, std::string>> by_use;
  for (const auto& [id, each] : cached_)
    if (!cache_.owns(id))
      by_use.emplace_back(each.used, id);
  std::sort(by_use.rbegin(), by_use.rend());
  std::vector<std::string> unneeded;
  const auto now = std::chrono::steady_clock::now();
  std::uint64_t bytes = 0;
  for (const auto& [used, id] : by_use) {
    bytes += cached_.at(id).bytes;
    if (bytes > cache_.bytes && now - used >= cache_.at_least)
      unneeded.push_back(id);
  }
  for (const auto& each : unneeded)
    cached_.erase(each);
  return unneeded;
}

void disk_copies::brought(const std::string& id, const result<void>& back, bool anew) {
  bringing over;
  bool unwanted = false;
  {
    const std::lock_guard hold{guard_};
    auto& at = bringing_.at(id);
    unwanted = back && anew && !at.is_wanted(); // Its record may have gone meanwhile.
    if (unwanted) // The place is kept: none is to begin with it before it has gone.
      over.waiting.swap(at.waiting);
    else
      over = std::move(bringing_.extract(id).mapped());
  }
  if (back && anew && !unwanted)
    note_cached(id, over.what.bytes);
  for (const auto& [token, then] : over.waiting)
    then(back);
  if (!unwanted)
    return;
  const auto tell = std::make_shared<told_once<result<void>>>(
    [self = shared_from_this(), id](const result<void>&) { self->dropped(id); });
  engine_.drop_snapshot(id, [tell](const result<void>& gone) { tell->give(gone); });
}

void disk_copies::dropped(const std::string& id) {
  bringing over;
  {
    const std::lock_guard hold{guard_};
    if (!bringing_.at(id).is_wanted())
      over = std::move(bringing_.extract(id).mapped());
  }
  if (over.what.id.empty())
    return look(id); // Another one came meanwhile.
  for (const auto& [token, then] : over.waiting)
    then(ending);
}

} // namespace insula::actors::snapshots

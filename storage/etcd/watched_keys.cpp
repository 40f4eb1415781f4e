#include "storage/etcd/watched_keys.hpp"

#include "storage/etcd/gateway_json.hpp"

#include <algorithm>
#include <future>
#include <utility>

namespace insula::storage::etcd {

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 5'000ms;
constexpr auto pause_after_failure = 200ms;
constexpr std::int64_t page = 1'000;

} // namespace

struct watched_keys::table : std::enable_shared_from_this<table> {
  table(client& c, std::string p, std::function<void()> tell)
      : with(c)
      , prefix(std::move(p))
      , changed(std::move(tell)) {}

  client& with;
  const std::string prefix;
  const std::function<void()> changed;

  mutable std::mutex mutex;
  std::map<std::string, key_value> keys;
  bool is_ready = false;

  // The client's thread:
  bool over = false;
  std::uint64_t turn = 0; ///< Counts the readings: an earlier one's watch and timer count no more.
  std::shared_ptr<void> watching;
  std::map<std::string, key_value> found;
  revision at = 0; ///< All changes up to here have been read or heard.

  void begin() {
    ++turn;
    watching.reset();
    found.clear();
    at = 0;
    read_from(prefix);
  }

  void begin_after(std::chrono::milliseconds pause) {
    with.after(pause, [self = shared_from_this(), of = turn] {
      if (!self->over && self->turn == of)
        self->begin();
    });
  }

  void read_from(std::string key) {
    with.transact({{}, {operation::read(std::move(key), end_of_prefix(prefix), false, page)}, {}},
                  patience, [self = shared_from_this(), of = turn](result<outcome> got) {
                    if (!self->over && self->turn == of)
                      self->have_read(std::move(got));
                  });
  }

  void have_read(result<outcome> got) {
    if (!got)
      return begin_after(pause_after_failure);
    if (at == 0)
      at = got->at;
    auto keys_read = got->found.empty() ? std::vector<key_value>{} : std::move(got->found[0]);
    const bool more = static_cast<std::int64_t>(keys_read.size()) == page;
    std::string last;
    for (auto& each : keys_read) {
      last = each.key;
      auto name = each.key.substr(prefix.size());
      found.insert_or_assign(std::move(name), std::move(each));
    }
    if (more)
      return read_from(last + '\0');
    {
      const std::lock_guard lock{mutex};
      keys = std::exchange(found, {});
      is_ready = true;
    }
    begin_watch();
    begin_after(refresh);
    changed();
  }

  void begin_watch() {
    watching = with.watch(
      prefix, at + 1,
      [self = shared_from_this(), of = turn](std::vector<event> events, revision) {
        if (!self->over && self->turn == of)
          self->hear(std::move(events));
      },
      [self = shared_from_this(), of = turn](const error& why) {
        if (!self->over && self->turn == of)
          self->watch_has_ended(why);
      });
  }

  /// Another watch goes on where this one was. Only what etcd has forgotten has to be read: were
  /// all read whenever a member is slow, a busy etcd would be kept busy by that.
  void watch_has_ended(const error& why) {
    watching.reset();
    if (why.code == errc::result_gone)
      return begin_after(pause_after_failure);
    with.after(pause_after_failure, [self = shared_from_this(), of = turn] {
      if (!self->over && self->turn == of)
        self->begin_watch();
    });
  }

  void hear(std::vector<event> events) {
    if (events.empty())
      return;
    {
      const std::lock_guard lock{mutex};
      for (auto& each : events) {
        at = std::max(at, each.what.modified);
        if (each.what.key.size() < prefix.size())
          continue;
        auto name = each.what.key.substr(prefix.size());
        if (each.removed)
          keys.erase(name);
        else
          keys.insert_or_assign(std::move(name), std::move(each.what));
      }
    }
    changed();
  }
};

watched_keys::watched_keys(client& with, std::string prefix, std::function<void()> changed)
    : table_(std::make_shared<table>(with, std::move(prefix), std::move(changed))) {}

watched_keys::~watched_keys() {
  std::promise<void> quiet;
  table_->with.post([&] {
    table_->over = true;
    table_->watching.reset();
    quiet.set_value();
  });
  quiet.get_future().wait();
}

void watched_keys::start() {
  table_->with.post([t = table_] { t->begin(); });
}

std::optional<key_value> watched_keys::find(const std::string& key) const {
  const std::lock_guard lock{table_->mutex};
  const auto at = table_->keys.find(key);
  return at == table_->keys.end() ? std::nullopt : std::optional{at->second};
}

bool watched_keys::has_any(const std::string& prefix) const {
  const std::lock_guard lock{table_->mutex};
  const auto at = table_->keys.lower_bound(prefix);
  return at != table_->keys.end() && at->first.starts_with(prefix);
}

std::map<std::string, key_value> watched_keys::all() const {
  const std::lock_guard lock{table_->mutex};
  return table_->keys;
}

std::size_t watched_keys::size() const {
  const std::lock_guard lock{table_->mutex};
  return table_->keys.size();
}

bool watched_keys::ready() const {
  const std::lock_guard lock{table_->mutex};
  return table_->is_ready;
}

} // namespace insula::storage::etcd

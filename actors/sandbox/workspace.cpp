#include "actors/protocol/lost_files.hpp"
#include "actors/sandbox/sandbox_state.hpp"

#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

/// Snapshots of the files of a persistent sandbox: taken now and then while it is used, before it
/// stands still or is stopped for want of use, and before it is handed over; put back when it
/// starts where its files are not.
namespace insula::actors::inside_sandbox {

namespace {

constexpr const char* persistent_key = "persistent"; ///< Since when, in Unix time.
constexpr const char* snapshot_key = "snapshot";     ///< When it was taken, and where it is.
/// Its files are being put back: whatever ends that, what is there is not all of them.
constexpr const char* half_key = "half_files";

constexpr const char* workspace = "/workspace";

/// Reads all files, whatever their permissions are, and makes way for those that come.
constexpr runtime::sandbox_user root{0, 0};

struct recorded_snapshot {
  std::int64_t taken_ms = 0;
  snapshot_reference where;
};

std::optional<recorded_snapshot> recorded(const sandbox_state& st) {
  const auto* text = st.record->find(snapshot_key);
  if (text == nullptr)
    return std::nullopt;
  recorded_snapshot found;
  const auto* const end = text->data() + text->size();
  const auto [stop, bad] = std::from_chars(text->data(), end, found.taken_ms);
  if (bad == std::errc{} && stop != end)
    found.where.assign(stop + 1, end);
  return found; // Without a place nothing can be had from there, which is told then.
}

std::int64_t recorded_number(const sandbox_state& st, const char* key) {
  const auto text = st.record->value(key);
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

} // namespace

bool is_persistent(const sandbox_state& st) {
  return st.options->files != nullptr &&
         (st.options->all_persistent || st.record->find(persistent_key) != nullptr);
}

bool has_snapshots(const sandbox_state& st) {
  return is_persistent(st) || st.record->find(snapshot_key) != nullptr;
}

bool has_half_its_files(const sandbox_state& st) {
  return st.record->find(half_key) != nullptr;
}

// ---- Who is persistent

bool marked_first(sandbox_pointer self, const request_context& context, std::function<void()> then,
                  std::function<void(const error&)> otherwise) {
  auto& st = self->state;
  if (!context.persistent || (st.record->find(persistent_key) != nullptr && !st.marking))
    return false;
  if (st.options->files == nullptr) {
    otherwise({errc::invalid_request, "this node keeps no snapshots of files"});
    return true;
  }
  with_lease(
    self,
    [=] {
      auto& now = self->state;
      if (now.now == phase::deleting)
        return otherwise(being_deleted);
      if (now.record->find(persistent_key) == nullptr) {
        now.record->write({{persistent_key, std::to_string(now.options->time->unix_ms())}}, {},
                          context);
        log::info("sandbox.persistent", {{"id", now.id->str()}, {"request", context.id}});
      }
      now.marking = true;
      now.record->when_durable(
        [=] {
          self->state.marking = false;
          then();
        },
        [=](const error& why) {
          self->state.marking = false;
          otherwise(why);
        });
    },
    otherwise);
  return true;
}

void mark(sandbox_pointer self, const mark_persistent& wanted, reply_to<caf::ok_atom> reply) {
  auto context = wanted.context;
  context.persistent = true; // with_record() does it.
  with_record(self, reply, context, [=](errand mine) {
    auto to = reply;
    to.deliver(caf::ok_atom::value);
    mine.over();
  });
}

// ---- Where its files are not

void note_files(sandbox_state& st, std::vector<storage::change>& into) {
  st.files.ran_before = st.record->find("started_ms") != nullptr;
  if (is_persistent(st) && st.record->find(persistent_key) == nullptr) // It stays so.
    into.push_back({persistent_key, std::to_string(st.options->time->unix_ms())});
  if (st.record->find(snapshot_key) != nullptr)
    into.push_back({half_key, "1"});
}

bool files_settled(sandbox_pointer self, std::function<void()> then) {
  auto& st = self->state;
  if (st.files.now != files_state::unknown)
    return st.files.now == files_state::settled;
  const auto from = recorded(st);
  if (st.adopting || !from) {
    st.files.now = files_state::settled;
    if (!st.adopting && st.files.ran_before && is_persistent(st)) // It was lost before the first.
      st.files.recovered = std::make_shared<recovery>(recorded_number(st, "created_ms"));
    return true;
  }
  st.files.now = files_state::settling;
  st.files.then = std::move(then);
  if (st.options->files == nullptr) {
    // Later: whoever has asked is in the middle of it.
    self->send(self, files_back{st.start, error{errc::store_failed,
                                                "they are in a snapshot, and this node's "
                                                "configuration does not say where those are"}});
    return false;
  }
  st.files.token = std::make_shared<work_token>();
  st.options->files->put_back(
    {st.id->str(), from->where,
     [place = st.place] {
       return place->open_tree({runtime::file_operation::write, workspace, {}, true}, root);
     },
     st.files.token},
    [me = self->address(), start = st.start](result<void> outcome) {
      tell(me, files_back{start, std::move(outcome)});
    });
  return false;
}

void heard(sandbox_pointer self, const files_back& said) {
  auto& st = self->state;
  if (said.start != st.start || st.now != phase::starting || st.files.now != files_state::settling)
    return;
  st.files.token = nullptr;
  const auto fail = [self](const error& why) {
    auto& now = self->state;
    log::error("sandbox.files_not_back",
               {{"id", now.id->str()}, {"reason", why.message}, {"request", now.watch.whose.id}});
    now.options->figures->not_started(start_failure::files);
    give_up_start(self, {errc::store_failed, std::string{files_unavailable} + why.message});
  };
  if (!said.outcome)
    return fail(said.outcome.reason());
  failpoint("sandbox.files_back");
  // Durable before anybody is served: else a crash could put back old files over new ones.
  st.record->write({{half_key, std::nullopt}}, {}, st.watch.whose);
  st.record->when_durable(
    [self, start = st.start] {
      auto& now = self->state;
      if (start != now.start || now.now != phase::starting)
        return;
      const auto taken_ms = recorded(now)->taken_ms;
      log::info("sandbox.files_back", {{"id", now.id->str()}, {"taken_ms", taken_ms}});
      now.files.recovered = std::make_shared<recovery>(taken_ms);
      now.files.now = files_state::settled;
      std::exchange(now.files.then, nullptr)();
    },
    [self, fail, start = st.start](const error& why) {
      if (start == self->state.start && self->state.now == phase::starting)
        fail(why);
    });
}

void meet(sandbox_state& st, const request_context& context) {
  auto& recovered = st.files.recovered;
  if (!recovered || !context.recovered)
    return;
  if (recovered->told())
    recovered = nullptr;
  else
    context.recovered->put(recovered);
}

// ---- Snapshots

bool may_be_kept(const sandbox_state& st) {
  return is_alive(st.now) && st.place != nullptr && is_persistent(st);
}

namespace {

void expect_snapshot(sandbox_pointer self) {
  auto& st = self->state;
  auto& files = st.files;
  const auto interval = st.options->keep_interval;
  if (interval.count() <= 0 || files.due_set || !(files.used || st.in_use()) || !may_be_kept(st))
    return;
  // A delayed message keeps its actor until it comes, also one that has been deleted.
  constexpr std::chrono::nanoseconds longest = std::chrono::seconds{20};
  const auto now = st.options->time->now();
  if (!files.last_began)
    files.last_began = now;
  const std::chrono::nanoseconds left =
    std::max(*files.last_began + interval, files.retry_at) - now;
  files.due_set = true;
  self->delayed_send(self, std::clamp(left, std::chrono::nanoseconds{0}, longest),
                     files_due_atom::value);
}

void begin_snapshot(sandbox_pointer self) {
  auto& st = self->state;
  auto& files = st.files;
  files.keeping = true;
  files.used = false;
  files.last_began = st.options->time->now();
  files.token = std::make_shared<work_token>();
  files.waiting = std::exchange(files.waiting_next, {});
  const auto before = recorded(st);
  const auto taken_ms =
    std::max(st.options->time->unix_ms(), before ? before->taken_ms + 1 : std::int64_t{0});
  st.options->files->keep(
    {st.id->str(), st.epoch, taken_ms,
     before && !files.record_unsure ? before->where : snapshot_reference{},
     [place = st.place] {
       return place->open_tree({runtime::file_operation::read, workspace, {}, true}, root);
     },
     files.token},
    [me = self->address(), start = st.start, number = ++files.number,
     taken_ms](result<snapshot_reference> outcome) {
      tell(me, files_kept{start, number, taken_ms, std::move(outcome)});
    });
}

/// It goes on for that, if it stands still. What reads its files is one of its processes.
bool begin_awake(sandbox_pointer self) {
  auto& st = self->state;
  if (st.freezing && st.pausing)
    return false;
  const bool stood_still = st.now == phase::frozen;
  if (!thaw(self, false))
    return false;
  st.files.refreeze |= stood_still;
  begin_snapshot(self);
  return true;
}

void refuse_next(sandbox_state& st) {
  for (auto& each : std::exchange(st.files.waiting_next, {}))
    each.deliver(to_caf({errc::io_failed, "what runs in it does not go on"}));
}

/// It is tried again, and costs less than half of the time. Files that cannot be kept will not be
/// the next time either, most likely; a place that is away comes back.
void not_kept(sandbox_state& st, const error& why) {
  auto& files = st.files;
  const bool own_doing = why.code == errc::io_failed || why.code == errc::limit_reached;
  const auto now = st.options->time->now();
  files.used = true;
  files.retry_at =
    now + std::max<std::chrono::nanoseconds>(files.retry, now - files.last_began.value_or(now));
  if (own_doing && files.retry == limits::snapshot_longest_retry)
    log::error("sandbox.files_cannot_be_kept", {{"id", st.id->str()}, {"reason", why.message}});
  else
    log::warning("sandbox.files_not_kept", {{"id", st.id->str()}, {"reason", why.message}});
  files.retry =
    own_doing ? std::min(2 * files.retry, limits::snapshot_longest_retry) : limits::snapshot_retry;
}

void snapshot_over(sandbox_pointer self, const result<void>& outcome) {
  auto& st = self->state;
  auto& files = st.files;
  files.keeping = false;
  files.token = nullptr;
  const bool before_stop = std::exchange(files.before_stop, false);
  const bool unused = !files.used && !st.in_use();
  if (outcome)
    files.retry = limits::snapshot_retry;
  else
    not_kept(st, outcome.reason());
  for (auto& each : std::exchange(files.waiting, {}))
    outcome ? each.deliver(caf::ok_atom::value) : each.deliver(to_caf(outcome.reason()));
  if (!is_alive(st.now))
    return;
  if (!files.waiting_next.empty()) {
    if (begin_awake(self))
      return;
    refuse_next(st);
  }
  const bool refreeze = std::exchange(files.refreeze, false) && unused;
  if (is_held(st))
    return st.now == phase::running ? freeze(self) : void();
  if (before_stop && outcome && unused)
    return stop(self);
  if (refreeze && !before_stop)
    freeze(self);
  if (!st.look_set)
    look(self); // At what was due when this began.
  expect_snapshot(self);
}

} // namespace

void heard(sandbox_pointer self, files_kept& said) {
  auto& st = self->state;
  if (said.start != st.start || said.number != st.files.number || !st.files.keeping)
    return; // It is over. What nobody remembers is removed some day.
  if (!said.outcome)
    return snapshot_over(self, said.outcome.reason());
  st.record->write({{snapshot_key, std::to_string(said.taken_ms) + " " + *said.outcome}});
  st.record->when_durable(
    [self, start = said.start, where = *said.outcome] {
      auto& now = self->state;
      now.files.record_unsure = false;
      now.options->files->forget(now.id->str(), now.epoch, where);
      log::debug("sandbox.files_kept", {{"id", now.id->str()}});
      if (start == now.start)
        snapshot_over(self, {});
    },
    [self, start = said.start](const error& why) {
      self->state.files.record_unsure = true;
      if (start == self->state.start)
        snapshot_over(self, why);
    });
}

void files_used(sandbox_pointer self) {
  self->state.files.used = true;
  expect_snapshot(self);
}

void look_at_files(sandbox_pointer self) {
  auto& st = self->state;
  auto& files = st.files;
  files.due_set = false;
  if (st.now != phase::running || is_held(st) || files.keeping || !may_be_kept(st))
    return;
  const auto now = st.options->time->now();
  files.used |= st.in_use();
  const auto due =
    std::max(files.last_began.value_or(now) + st.options->keep_interval, files.retry_at);
  if (files.used && now >= due && !st.freezing)
    begin_snapshot(self);
  expect_snapshot(self);
}

bool kept_first(sandbox_pointer self, idle_step next) {
  auto& st = self->state;
  auto& files = st.files;
  if (!may_be_kept(st))
    return false;
  const bool stops = next == idle_step::stop;
  if (!files.keeping && !stops && (!files.used || st.options->keep_interval.count() <= 0))
    return false;
  if (!files.keeping && st.options->time->now() < files.retry_at) {
    if (!stops)
      return false; // It can be kept later as well.
    if (st.now == phase::running && st.options->ladder.freeze_after.count() > 0)
      freeze(self);
    look_later(self, files.retry_at - st.options->time->now());
    return true;
  }
  if (files.keeping) {
    look_later(self, limits::snapshot_retry);
    return true;
  }
  if (begin_awake(self)) {
    files.before_stop = stops;
  } else {
    files.retry_at = st.options->time->now() + limits::snapshot_retry;
    look_later(self, limits::snapshot_retry);
  }
  return true;
}

void keep_files(sandbox_pointer self, reply_to<caf::ok_atom> reply) {
  auto& st = self->state;
  if (!may_be_kept(st))
    return static_cast<void>(reply.deliver(caf::ok_atom::value));
  st.files.waiting_next.push_back(reply);
  if (st.files.keeping || begin_awake(self))
    return; // Else after the one that is on its way, which may be of an earlier moment.
  refuse_next(st);
}

void keep_used_files(sandbox_pointer self, reply_to<caf::ok_atom> reply) {
  const auto& files = self->state.files;
  if (files.used || files.keeping)
    keep_files(self, std::move(reply));
  else
    reply.deliver(caf::ok_atom::value);
}

void forget_snapshots(const sandbox_state& st) {
  if (st.options->files != nullptr)
    st.options->files->forget(st.id->str(), st.epoch, {});
}

} // namespace insula::actors::inside_sandbox

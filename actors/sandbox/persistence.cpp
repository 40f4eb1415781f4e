#include "actors/sandbox/persistence.hpp"

#include "actors/protocol/lost_files.hpp"
#include "actors/record_keys.hpp"
#include "actors/run_record.hpp"
#include "actors/sandbox/description.hpp"
#include "actors/sandbox/disk_snapshots.hpp"
#include "actors/sandbox/idle.hpp"
#include "actors/sandbox/startup.hpp"
#include "actors/sandbox/teardown.hpp"
#include "actors/sandbox_metadata.hpp"
#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace insula::actors::inside_sandbox {

namespace {

/// Its files are being put back: if that is cut short, what is there is not all of them.
constexpr const char* half_key = "half_files";
/// When its disk was last kept, in Unix time.
constexpr const char* disk_kept_key = "disk_kept_ms";

/// Reads all files, whatever their permissions are, and makes way for those that come.
constexpr runtime::sandbox_user root{0, 0};

/// Opens the workspace for what an earlier version kept of it.
open_tree_function opener(const core& of) {
  return [in = of.engine_sandbox(), path = of.profile().cwd] {
    return in->open_tree({runtime::file_operation::write, path, {}, true}, root);
  };
}

} // namespace

std::optional<persistence::recorded_snapshot> persistence::recorded() const {
  const auto* text = record().find(snapshot_key);
  if (text == nullptr)
    return std::nullopt;
  recorded_snapshot found;
  const auto* const end = text->data() + text->size();
  const auto [stop, bad] = std::from_chars(text->data(), end, found.taken_ms);
  if (bad == std::errc{} && stop != end)
    found.where.assign(stop + 1, end);
  return found; // Without a place nothing can be had from there, which is told then.
}

bool persistence::is_marked() const {
  return record().find(persistent_key) != nullptr;
}

bool is_persistent(const core& of) {
  const auto& options = of.options();
  return options.keeps_disks &&
         (options.all_persistent || of.record().find(persistent_key) != nullptr ||
          (options.run_disks && options.run_disks(metadata_of(of.record().entries())).keeps));
}

namespace {

/// The run before the one that begins has left its disk itself: nothing was lost.
bool has_left_its_disk(const core& of) {
  const auto& entries = of.record().entries();
  const auto now = last_run(entries);
  auto before = now ? run_before(entries, now->number) : std::nullopt;
  // One that never ran has lost nothing, and has left nothing.
  while (before && before->state != run_state::stopped && before->ended_ms == before->started_ms)
    before = run_before(entries, before->number);
  return before && before->state != run_state::aborted;
}

} // namespace

bool persistence::has_snapshots() const {
  return is_persistent(core_) || record().find(snapshot_key) != nullptr;
}

bool persistence::has_half_its_files() const {
  return record().find(half_key) != nullptr;
}

/// They are gone, and no snapshot of them is waited for in vain.
void persistence::forget(const error& why) {
  if (files_.token)
    files_.token->cancel();
  const auto gone = std::exchange(files_, {});
  for (const auto* all : {&gone.waiting, &gone.waiting_next})
    for (const auto& each : *all)
      each.fail(why);
}

void persistence::deleting(const error&) {
  forget(being_deleted);
}

// ---- Persistence

bool persistence::delays(const request_context& context, const then_function& then,
                         const otherwise_function& otherwise) {
  if (!context.persistent || (is_marked() && !marking_))
    return false;
  if (!options().keeps_disks) {
    otherwise({errc::invalid_request, "this node keeps no snapshots of files"});
    return true;
  }
  core_.with_lease(
    [=, this] {
      if (core_.now() == phase::deleting)
        return otherwise(being_deleted);
      if (!is_marked()) {
        record().write({{persistent_key, std::to_string(options().time->unix_ms())}}, context);
        log::info("sandbox.persistent", {{"id", core_.id()}, {"request", context.id}});
      }
      marking_ = true;
      record().when_durable(
        [=, this] {
          marking_ = false;
          then();
        },
        [=, this](const error& why) {
          marking_ = false;
          otherwise(why);
        });
    },
    otherwise);
  return true;
}

void persistence::mark(const mark_persistent& wanted, const reply<caf::ok_atom>& to) {
  auto context = wanted.context;
  context.persistent = true; // delays() does it.
  core_.with_record(to, context,
                    [](const reply<caf::ok_atom>& mine) { mine.deliver(caf::ok_atom::value); });
}

// ---- Where its files are not

void persistence::note_start(std::vector<storage::change>& into) {
  files_.ran_before = record().find(started_key) != nullptr;
  if (options().keeps_disks && options().all_persistent && !is_marked()) // It stays so.
    into.push_back({persistent_key, std::to_string(options().time->unix_ms())});
  if (record().find(snapshot_key) != nullptr)
    into.push_back({half_key, "1"});
}

std::vector<storage::change> persistence::changes_of_kept(std::int64_t taken_ms) const {
  std::vector<storage::change> changes{{disk_kept_key, std::to_string(taken_ms)}};
  note_other_disk(changes);
  return changes;
}

void persistence::note_other_disk(std::vector<storage::change>& into) const {
  for (const auto* key : {snapshot_key, half_key})
    if (record().find(key) != nullptr)
      into.push_back({key, std::nullopt});
}

bool persistence::settle(const then_function& then, const otherwise_function&) {
  if (files_.now != state::unknown)
    return files_.now == state::settled;
  const auto from = recorded();
  if (startup_.adopting() || !from) {
    files_.now = state::settled;
    // It was lost before the first snapshot.
    if (!startup_.adopting() && files_.ran_before && is_persistent(core_) &&
        !has_left_its_disk(core_))
      files_.recovered = std::make_shared<recovery>(
        number_in(record().entries(), disk_kept_key)
          .value_or(number_in(record().entries(), created_key).value_or(0)));
    return true;
  }
  files_.now = state::settling;
  files_.then = then;
  const auto told = [this, start = core_.start(), post = core_.post()](result<void> outcome) {
    post([=, this] { on_back(start, outcome); });
  };
  if (options().files == nullptr) {
    told(error{errc::store_failed, "they are in a snapshot, and this node's configuration does not "
                                   "say where those are"});
    return false;
  }
  files_.token = std::make_shared<work_token>();
  options().files->put_back({core_.id(), from->where, opener(core_), files_.token}, told);
  return false;
}

void persistence::not_back(const error& why) {
  log::error("sandbox.files_not_back",
             {{"id", core_.id()}, {"reason", why.message}, {"request", startup_.whose().id}});
  options().figures->not_started(start_failure::files);
  startup_.give_up({errc::store_failed, std::string{files_unavailable} + why.message});
}

void persistence::on_back(std::uint64_t start, const result<void>& outcome) {
  if (start != core_.start() || core_.now() != phase::starting || files_.now != state::settling)
    return;
  files_.token = nullptr;
  if (!outcome)
    return not_back(outcome.reason());
  failpoint("sandbox.files_back");
  // Durable before a request is served: else a crash could put back old files over new ones.
  record().write({{half_key, std::nullopt}}, startup_.whose());
  record().when_durable(
    [this, start] {
      if (start != core_.start() || core_.now() != phase::starting)
        return;
      const auto taken_ms = recorded()->taken_ms;
      log::info("sandbox.files_back", {{"id", core_.id()}, {"taken_ms", taken_ms}});
      files_.recovered = std::make_shared<recovery>(taken_ms);
      files_.now = state::settled;
      std::exchange(files_.then, nullptr)();
    },
    [this, start](const error& why) {
      if (start == core_.start() && core_.now() == phase::starting)
        not_back(why);
    });
}

void persistence::served(const request_context& context) {
  auto& recovered = files_.recovered;
  if (!recovered || !context.recovered)
    return;
  if (recovered->told())
    recovered = nullptr;
  else
    context.recovered->put(recovered);
}

// ---- Snapshots

bool persistence::may_be_kept() const {
  return core_.runs() && is_persistent(core_);
}

void persistence::expect_snapshot() {
  const auto interval = options().keep_interval;
  if (interval.count() <= 0 || check_is_set_ || !(files_.used || core_.in_use()) || !may_be_kept())
    return;
  // As core::after() wants it.
  constexpr std::chrono::nanoseconds longest = std::chrono::seconds{20};
  const auto now = options().time->now();
  if (!files_.last_began)
    files_.last_began = now;
  const std::chrono::nanoseconds left =
    std::max(*files_.last_began + interval, files_.retry_at) - now;
  check_is_set_ = true;
  core_.after(std::clamp(left, std::chrono::nanoseconds{0}, longest), [this] { check(); });
}

void persistence::begin_snapshot() {
  files_.keeping = true;
  ++number_;
  files_.used = false;
  files_.last_began = options().time->now();
  files_.waiting = std::exchange(files_.waiting_next, {});
  const bool has_older = record().find(snapshot_key) != nullptr;
  disk_.keep([this, start = core_.start(), has_older](const result<void>& outcome) {
    on_kept(start, has_older, outcome);
  });
}

/// It is tried again, and costs less than half of the time. A disk that cannot be kept will not be
/// the next time either, most likely; a place that is away comes back.
void persistence::not_kept(const error& why) {
  const bool own_doing = why.code == errc::io_failed || why.code == errc::limit_reached;
  const auto now = options().time->now();
  files_.used = true;
  files_.retry_at =
    now + std::max<std::chrono::nanoseconds>(files_.retry, now - files_.last_began.value_or(now));
  if (own_doing && files_.retry == limits::snapshot_longest_retry)
    log::error("sandbox.files_cannot_be_kept", {{"id", core_.id()}, {"reason", why.message}});
  else
    log::warning("sandbox.files_not_kept", {{"id", core_.id()}, {"reason", why.message}});
  files_.retry = std::min(2 * files_.retry, own_doing ? limits::snapshot_longest_retry
                                                      : limits::snapshot_longest_away_retry);
}

void persistence::snapshot_over(const result<void>& outcome) {
  files_.keeping = false;
  const bool before_stop = std::exchange(files_.before_stop, false);
  const bool unused = !files_.used && !core_.in_use();
  if (outcome)
    files_.retry = limits::snapshot_retry;
  else
    not_kept(outcome.reason());
  for (const auto& each : std::exchange(files_.waiting, {}))
    outcome ? each.deliver(caf::ok_atom::value) : each.fail(outcome.reason());
  if (!is_alive(core_.now()))
    return;
  if (!files_.waiting_next.empty())
    return begin_snapshot();
  if (core_.is_held())
    return;
  if (before_stop && outcome && unused)
    return teardown_.stop();
  if (!idle_.check_scheduled())
    idle_.check(); // The step that was due when this began.
  expect_snapshot();
}

void persistence::on_kept(std::uint64_t start, bool had_older, const result<void>& outcome) {
  if (outcome) {
    log::debug("sandbox.disk_kept", {{"id", core_.id()}});
    if (had_older)
      forget_snapshots();
  }
  if (start == core_.start() && files_.keeping)
    snapshot_over(outcome);
}

void persistence::used() {
  files_.used = true;
  expect_snapshot();
}

void persistence::check() {
  check_is_set_ = false;
  if (core_.now() != phase::running || core_.is_held() || files_.keeping || !may_be_kept())
    return;
  const auto now = options().time->now();
  files_.used |= core_.in_use();
  const auto due =
    std::max(files_.last_began.value_or(now) + options().keep_interval, files_.retry_at);
  if (files_.used && now >= due && !idle_.freezing())
    begin_snapshot();
  expect_snapshot();
}

bool persistence::delays(idle_step next) {
  if (!may_be_kept())
    return false;
  const bool stops = next == idle_step::stop;
  if (!files_.keeping && !stops && (!files_.used || options().keep_interval.count() <= 0))
    return false;
  if (!files_.keeping && options().time->now() < files_.retry_at) {
    if (!stops)
      return false; // It can be kept later as well.
    if (core_.now() == phase::running && options().ladder.freeze_after.count() > 0)
      idle_.stand_still();
    idle_.schedule_check(files_.retry_at - options().time->now());
    return true;
  }
  if (files_.keeping && !stops)
    return false; // Its copy may take long, and does not need it to run.
  if (files_.keeping) {
    idle_.schedule_check(limits::snapshot_retry);
    return true;
  }
  begin_snapshot();
  files_.before_stop = stops;
  core_.after(limits::snapshot_retry, [this, number = number_] { stand_still_if_kept(number); });
  return true;
}

/// A step waits for a snapshot whose copy takes long: it goes on without the sandbox running.
void persistence::stand_still_if_kept(std::uint64_t number) {
  if (number == number_ && files_.keeping && !files_.used && !core_.in_use() &&
      core_.now() == phase::running && options().ladder.freeze_after.count() > 0)
    idle_.stand_still();
}

void persistence::keep(const reply<caf::ok_atom>& to) {
  if (!may_be_kept())
    return to.deliver(caf::ok_atom::value);
  files_.waiting_next.push_back(to);
  if (!files_.keeping) // Else after that one, which may be of an earlier moment.
    begin_snapshot();
}

void persistence::keep_if_used(const reply<caf::ok_atom>& to) {
  if (files_.used || files_.keeping || core_.is_written())
    keep(to);
  else
    to.deliver(caf::ok_atom::value);
}

void persistence::forget_snapshots() const {
  if (options().files != nullptr)
    options().files->forget(core_.id(), core_.epoch(), {});
}

} // namespace insula::actors::inside_sandbox

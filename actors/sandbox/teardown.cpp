#include "actors/sandbox/teardown.hpp"

#include "actors/sandbox/command_logs.hpp"
#include "actors/sandbox/description.hpp"
#include "actors/sandbox/gate.hpp"
#include "actors/sandbox/idempotency.hpp"
#include "actors/sandbox/lease.hpp"
#include "actors/sandbox/persistence.hpp"
#include "actors/sandbox/runs.hpp"
#include "actors/sandbox/startup.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace insula::actors::inside_sandbox {

void teardown::destroy() {
  engine_sandbox()->destroy([this, start = core_.start(), post = core_.post()] {
    post([this, start] { on_gone(start); });
  });
}

void teardown::stop(sandbox_end why, std::string told) {
  why_stopped_ = std::move(told);
  core_.become(phase::stopping);
  options().figures->ended(why);
  log::info(why == sandbox_end::idle ? "sandbox.idle" : "sandbox.stopped", {{"id", core_.id()}});
  destroy();
}

void teardown::on_ended(std::uint64_t start, bool for_memory) {
  if (start != core_.start())
    return;
  const bool is_planned = *options().node_ends && !for_memory;
  log::write(is_planned ? log::level::info : log::level::warning, "sandbox.ended",
             {{"id", core_.id()},
              {"reason", is_planned   ? "the node ends"
                         : for_memory ? "it held kernel memory outside of its limit"
                                      : "its first process is gone"}});
  if (core_.now() == phase::deleting || core_.now() == phase::stopping)
    return; // on_gone() follows.
  std::deque<waiting_request> waiting;
  if (is_alive(core_.now())) {
    options().figures->ended(for_memory ? sandbox_end::memory : sandbox_end::died);
    waiting = with_.requests.take(); // Since it was over, or for its resume.
  } else {
    options().figures->not_started(start_failure::launch);
  }
  sleep_unless_awaited({errc::sandbox_not_running, "it has ended"}, std::move(waiting));
}

/// The requests that have come meanwhile get a fresh one.
void teardown::sleep_unless_awaited(const error& why, std::deque<waiting_request> waiting) {
  with_.starts.fall_asleep(why);
  with_.requests.wait_again(std::move(waiting));
  if (!with_.requests.empty())
    with_.starts.begin();
}

void teardown::on_gone(std::uint64_t start) {
  if (start != core_.start() || !engine_sandbox())
    return; // It may be said twice, when a stop was overtaken by a delete.
  failpoint("sandbox.gone");
  core_.set_engine_sandbox(nullptr);
  if (core_.now() == phase::deleting)
    return finish_delete();
  if (!handing_over_.empty()) {
    const pending_operation mine{core_}; // It keeps its lease meanwhile.
    with_.starts.fall_asleep(leaves_node);
    handed_over();
    return mine.over();
  }
  sleep_unless_awaited({errc::sandbox_not_running, why_stopped_}, with_.requests.take());
}

// ---- Leaving the node

void teardown::evict(const reply<caf::ok_atom>& to) {
  evicting_.push_back(to);
  if (std::exchange(evicted_, true))
    return;
  if (core_.now() ==
      phase::deleting) // That ends as well; its record stays, and its client is told.
    return core_.set_refusal(leaves_node);
  log::warning("sandbox.evicted", {{"id", core_.id()}});
  if (core_.runs())
    options().figures->ended(sandbox_end::died);
  begin_delete();
}

/// What it has written goes first: the next owner would not find it.
void teardown::handed_over() {
  if (std::exchange(parting_, true))
    return;
  const pending_operation mine{core_};
  with_.keys.leave(
    [=, this] {
      core_.when_settled([=, this] {
        part_from_node(nullptr);
        mine.over();
      });
    },
    [=, this](const error& why) {
      part_from_node(&why);
      mine.over();
    });
}

/// With a reason it stays.
void teardown::part_from_node(const error* why_not) {
  parting_ = false;
  if (why_not == nullptr && core_.now() == phase::deleting)
    why_not = &being_deleted;
  if (why_not == nullptr)
    with_.right.release();
  for (const auto& each : std::exchange(handing_over_, {}))
    why_not == nullptr ? each.deliver(caf::ok_atom::value) : stay(*why_not, each);
}

/// It goes on here meanwhile.
void teardown::stay(const error& why, const reply<caf::ok_atom>& to) {
  leaving_ = false;
  if (core_.now() != phase::deleting)
    core_.set_refusal(std::nullopt);
  to.fail(why);
}

void teardown::leave(const reply<caf::ok_atom>& to) {
  const bool at_rest = core_.now() == phase::asleep && core_.operations() == 0 &&
                       with_.requests.empty() && !with_.right.asked_for();
  if (at_rest)
    with_.starts.adopt(); // If there is something to be adopted.
  if ((!at_rest || core_.has_survived()) && !is_alive(core_.now()) &&
      core_.now() != phase::stopping)
    return stay({errc::limit_reached, "it is being started or changed"}, to);
  handing_over_.push_back(to);
  if (at_rest)
    return handed_over();
  if (is_alive(core_.now()))
    stop();
}

/// The first snapshot, with its copy, may take long, and the sandbox serves meanwhile. What comes
/// after that is refused, so that the next one, which has less to write, is the last. A command
/// that ends while a snapshot is taken has told its client, and its work may be in that snapshot or
/// not: then another one is taken. The same goes for a command that is about to end; one that goes
/// on and on is ended.
void teardown::keep_and_leave(const reply<caf::ok_atom>& to, unsigned snapshots_left) {
  const auto kept = [=, this](const result<caf::ok_atom>& outcome) {
    auto why =
      outcome ? error{errc::limit_reached, "it is never done with what it does"} : outcome.reason();
    if (core_.now() == phase::deleting)
      return stay(being_deleted, to);
    if (const auto why_not = core_.forbids_leaving()) // It was attached meanwhile.
      return stay(*why_not, to);
    if (outcome) {
      const auto& files = with_.files;
      core_.set_refusal(leaves_node);
      if (!files.may_be_kept() || (!files.was_used() && (!core_.in_use() || snapshots_left == 0)))
        return leave(to);
      if (snapshots_left > 0)
        return keep_and_leave(to, snapshots_left - 1);
    }
    stays_until_ = std::max(with_.files.retry_at(), options().time->now() + limits::snapshot_retry);
    stay(why, to);
  };
  // Later: the snapshot's end has other things to do first.
  with_.files.keep(
    reply<caf::ok_atom>::function{[kept, post = core_.post()](const result<caf::ok_atom>& outcome) {
      post([kept, outcome] { kept(outcome); });
    }});
}

void teardown::hand_over(const reply<caf::ok_atom>& to) {
  constexpr unsigned most_more_snapshots = 4;
  if (core_.now() == phase::deleting)
    return to.fail(being_deleted);
  if (parting_)
    return handing_over_.push_back(to);
  if (const auto why = core_.forbids_leaving())
    return to.fail(*why);
  const bool has_files = with_.files.may_be_kept();
  if (has_files && options().time->now() < stays_until_)
    return to.fail({errc::limit_reached, "it could not be kept just now"});
  if (std::exchange(leaving_, true) && has_files)
    return to.fail({errc::limit_reached, "it leaves already"});
  if (has_files)
    return keep_and_leave(to, most_more_snapshots);
  core_.set_refusal(leaves_node);
  leave(to);
}

// ---- Deletion

void teardown::remove(request_context context, const reply<caf::ok_atom>& to) {
  // Of a drive the record says which sandbox of an earlier server has it.
  if (!record().loaded() && !options().engine->survivors().empty()) {
    const auto go_on = [this, context, to] { remove_known(context, to); };
    return record().load(
      go_on, [go_on](const error&) { go_on(); }, context);
  }
  remove_known(std::move(context), to);
}

void teardown::remove_known(request_context context, const reply<caf::ok_atom>& to) {
  if (const auto why = core_.now() == phase::deleting ? std::nullopt : core_.forbids_leaving())
    return to.fail(*why);
  deleting_.push_back(to);
  if (core_.now() == phase::deleting)
    return;
  if (core_.runs())
    options().figures->ended(sandbox_end::deleted);
  deletion_ = std::move(context);
  begin_delete();
}

void teardown::deleted(const error* why_not) {
  if (std::exchange(ended_, true))
    return;
  const bool outlived = why_not != nullptr && why_not->code == errc::stale_epoch;
  // In a cluster the record is there, and another node's: a client that asks again deletes it
  // there.
  const bool moved = evicted_ || (outlived && options().ours);
  // On one node it is that of a later one: of this sandbox nothing is left.
  const bool gone = why_not == nullptr || outlived;
  const auto& told = moved ? leaves_node : being_deleted;
  core_.each_part([&](part& one) { one.stopped(told); });
  if (gone || moved)
    with_.logs.forget_all();
  with_.right.release();
  if (evicted_)
    log::info("sandbox.left", {{"id", core_.id()}});
  else if (why_not == nullptr)
    log::info("sandbox.deleted", {{"id", core_.id()}, {"request", deletion_.id}});
  else
    log::error("sandbox.record_stays",
               {{"id", core_.id()}, {"reason", why_not->message}, {"request", deletion_.id}});
  // Requests that still wait for the store are refused now: later there is no actor to do so.
  with_.right.close(told);
  record().abandon(told);
  local().abandon(told);
  core_.run_clock().abandon(told);
  for (const auto& each : std::exchange(deleting_, {}))
    if (moved)
      each.fail(leaves_node);
    else
      gone ? each.deliver(caf::ok_atom::value) : each.fail(*why_not);
  for (const auto& each : std::exchange(evicting_, {}))
    each.deliver(caf::ok_atom::value);
  quit_();
}

/// Nothing is stored of it, and nothing that could come to be is on its way to the store.
bool teardown::is_absent() const {
  return record().entries().empty() && core_.is_settled() && !record().is_doubtful();
}

/// The record goes last, so that a crash before it leaves something to be deleted again; and the
/// client is told if it stays, though nothing runs any more.
void teardown::finish_delete() {
  const auto failed = [this](const error& why) { deleted(&why); };
  if (!evicted_ && with_.right.asked_for()) // Else it would be held for ever.
    return core_.with_lease([this] { finish_delete(); },
                            [this](const error& why) {
                              const bool nothing = is_absent();
                              deleted(nothing && why.code != errc::stale_epoch ? nullptr : &why);
                            });
  if (evicted_ ? core_.epoch() == 0 : is_absent())
    return deleted(nullptr);
  const auto done = [this] { deleted(nullptr); };
  if (evicted_)
    return local().destroy(done, failed, {});
  const auto destroy_record = [this, done, failed] {
    const bool persistent = with_.files.has_snapshots();
    const auto disk_from = record().value(disk_from_key);
    const auto disk_next = record().value(disk_next_key);
    record().destroy(
      [this, persistent, disk_from, disk_next, done] {
        if (persistent)
          with_.files.forget_snapshots();
        if (!disk_next.empty() && disk_next != disk_from)
          core_.release_snapshot(disk_next);
        if (!disk_from.empty()) // Its bytes go with it.
          return core_.release_snapshot(disk_from, done);
        done();
      },
      failed, deletion_);
  };
  core_.with_lease(
    [=, this] {
      with_.logs.forget_all([=, this] { local().destroy(destroy_record, failed, deletion_); });
    },
    failed);
}

void teardown::load_and_finish_delete() {
  record().load([this] { finish_delete(); }, [this](const error& why) { deleted(&why); },
                deletion_);
}

void teardown::begin_delete() {
  const auto before = core_.now();
  core_.become(phase::deleting);
  core_.set_refusal(evicted_ ? leaves_node : being_deleted);
  core_.each_part([this](part& one) { one.deleting(*core_.refusal()); });
  if (engine_sandbox())
    return destroy();
  if (before != phase::asleep)
    return; // On its way: the engine answers, and the start goes on with this.
  if (core_.has_survived())
    return with_.starts.end_survivor();
  if (evicted_)
    return finish_delete();
  load_and_finish_delete(); // Nothing runs, but there may be a record.
}

// ---- Alarms

/// Nothing in this version sets such a one. Another version's must not ring for ever.
void teardown::silence(kept_record& kept, const alarm_due& due) {
  log::warning("sandbox.unknown_alarm", {{"id", core_.id()}, {"object", due.whose.object}});
  if (due.whose.object.empty())
    kept.alarm_over(due);
  else
    kept.write({{std::string{alarm_keys} + due.whose.object, std::nullopt}});
}

/// Answered when that is durable, so that it comes again if it does not come to that.
void teardown::expire(const reply<caf::ok_atom>& to) {
  deleting_.push_back(to);
  if (core_.now() == phase::deleting)
    return;
  log::info("sandbox.expired", {{"id", core_.id()}});
  if (core_.runs())
    options().figures->ended(sandbox_end::deleted);
  begin_delete();
}

void teardown::attend(const alarm_due& due, const reply<caf::ok_atom>& to) {
  if (core_.now() == phase::deleting)
    return to.fail({errc::sandbox_not_running, "it is being deleted"});
  const pending_operation mine{core_};
  const bool of_run = due.whose.where == kept_in::cluster && due.whose.object == run_clock_prefix;
  auto& kept = of_run                                ? core_.run_clock()
               : due.whose.where == kept_in::cluster ? record()
                                                     : local();
  const auto done = [to, mine] {
    to.deliver(caf::ok_atom::value);
    mine.over();
  };
  const auto failed = [to, mine](const error& why) {
    to.fail(why);
    mine.over();
  };
  const auto attend_run = [=, this, &kept] {
    if (!kept.is_set(due))
      return done();
    core_.with_lease(
      [=, this, &kept] {
        with_.asked_for.attend(due);
        kept.when_durable(done, failed);
      },
      failed);
  };
  if (of_run) // What it is about stands in the record.
    return record().load([=, &kept] { kept.load(attend_run, failed); }, failed);
  kept.load(
    [=, this, &kept] {
      if (due.whose.object.empty() && !kept.is_set(due))
        return done();
      const bool own = due.whose.where == kept_in::cluster && due.whose.object.empty();
      const auto left = own ? time_left(core_) : std::nullopt;
      if (left && left->count() <= 0) {
        expire(to);
        return mine.over();
      }
      core_.with_lease(
        [=, this, &kept] {
          if (due.whose.where == kept_in::node && due.whose.object.empty())
            with_.keys.expire(due);
          else if (left) // One of the two clocks says so: not yet.
            kept.set_alarm(*left);
          else
            silence(kept, due);
          kept.when_durable(done, failed);
        },
        failed);
    },
    failed);
}

void teardown::ends(const error& why) {
  for (auto* all : {&deleting_, &handing_over_, &evicting_})
    for (const auto& each : std::exchange(*all, {}))
      each.fail(why);
}

} // namespace insula::actors::inside_sandbox

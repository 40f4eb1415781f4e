#include "actors/sandbox/sandbox_state.hpp"

#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace insula::actors::inside_sandbox {

void look_later(sandbox_pointer self, std::chrono::nanoseconds left) {
  // Or sooner: a delayed message keeps its actor until it comes, also one that has been deleted.
  constexpr std::chrono::nanoseconds longest = std::chrono::seconds{20};
  self->state.look_set = true;
  // Nor later than the first step: it can be used, and be idle again, while this is on its way.
  const auto first = until_next_step(self->state.options->ladder, {}).value_or(longest);
  self->delayed_send(self, std::min({left, longest, first}), idle_atom::value);
}

void touch(sandbox_pointer self) {
  auto& st = self->state;
  if (st.now == phase::deleting)
    return;
  st.last_used = st.options->time->now();
  forget_idle(self);
  st.cannot_freeze = false;
  const auto left = until_next_step(st.options->ladder, {});
  if (!st.look_set && is_alive(st.now) && left)
    look_later(self, *left);
  files_used(self);
}

void stop(sandbox_pointer self) {
  auto& st = self->state;
  st.become(phase::stopping);
  st.options->figures->ended(sandbox_end::idle);
  log::info("sandbox.idle", {{"id", st.id->str()}});
  st.place->destroy([me = self->address(), start = st.start] { tell(me, sandbox_gone{start}); });
}

void heard(sandbox_pointer self, const sandbox_ended& said) {
  auto& st = self->state;
  if (said.start != st.start)
    return;
  const bool is_planned = *st.options->node_ends && !said.for_memory;
  log::write(is_planned ? log::level::info : log::level::warning, "sandbox.ended",
             {{"id", st.id->str()},
              {"reason", is_planned        ? "the node ends"
                         : said.for_memory ? "it held kernel memory outside of its limit"
                                           : "its first process is gone"}});
  if (st.now == phase::deleting || st.now == phase::stopping)
    return; // sandbox_gone follows.
  if (is_alive(st.now))
    st.options->figures->ended(said.for_memory ? sandbox_end::memory : sandbox_end::died);
  else
    st.options->figures->not_started(start_failure::launch);
  fall_asleep(self, {errc::sandbox_not_running, "it has ended"});
}

void heard(sandbox_pointer self, const sandbox_gone& said) {
  auto& st = self->state;
  if (said.start != st.start || !st.place)
    return; // It may be said twice, when a stop was overtaken by a delete.
  failpoint("sandbox.gone");
  st.place.reset();
  if (st.now == phase::deleting)
    return finish_delete(self);
  if (!st.handing_over.empty()) {
    fall_asleep(self, leaves_node);
    return handed_over(self);
  }
  // Stopped for being idle; whoever has come meanwhile gets a fresh one.
  auto waiting = std::exchange(st.waiting, {});
  fall_asleep(self, {errc::sandbox_not_running, "it was stopped"});
  st.waiting = std::move(waiting);
  if (!st.waiting.empty())
    begin_start(self);
}

// ---- Leaving the node

void evict(sandbox_pointer self, reply_to<caf::ok_atom> reply) {
  auto& st = self->state;
  st.evicting.push_back(std::move(reply));
  if (std::exchange(st.evicted, true) || st.now == phase::deleting)
    return; // A delete under way ends as well; its record stays, and who asked for it is told.
  log::warning("sandbox.evicted", {{"id", st.id->str()}});
  if (st.place && is_alive(st.now))
    st.options->figures->ended(sandbox_end::died);
  begin_delete(self);
}

void handed_over(sandbox_pointer self) {
  auto& st = self->state;
  st.release_lease();
  for (auto& each : std::exchange(st.handing_over, {}))
    each.deliver(caf::ok_atom::value);
}

namespace {

void leave(sandbox_pointer self, reply_to<caf::ok_atom> reply) {
  auto& st = self->state;
  const bool at_rest = st.now == phase::asleep && st.alarms == 0 && st.errands == 0 &&
                       st.waiting.empty() && st.want_lease.empty();
  if (at_rest && has_survived(st))
    adopt(self);
  if ((!at_rest || has_survived(st)) && !is_alive(st.now) && st.now != phase::stopping) {
    st.leaving = false;
    return static_cast<void>(
      reply.deliver(to_caf({errc::limit_reached, "it is being started or changed"})));
  }
  st.handing_over.push_back(std::move(reply));
  if (at_rest)
    return handed_over(self);
  if (is_alive(st.now))
    stop(self);
}

/// What ends while a snapshot is taken has been told to whoever waited for it, and may be in that
/// snapshot or not: then another one is taken. So it is for what is about to end; what goes on and
/// on is ended.
void keep_and_leave(sandbox_pointer self, reply_to<caf::ok_atom> reply, unsigned snapshots_left) {
  auto stays = [self, reply](caf::error why) mutable {
    auto& st = self->state;
    st.leaving = false; // It goes on here meanwhile.
    st.stays_until = std::max(st.files.retry_at, st.options->time->now() + limits::snapshot_retry);
    reply.deliver(std::move(why));
  };
  self
    ->request(caf::actor_cast<sandbox_object_actor>(self->address()), caf::infinite,
              keep_files_atom::value)
    .then(
      [self, reply, snapshots_left, stays](caf::ok_atom) mutable {
        const auto& st = self->state;
        if (!may_be_kept(st) || (!st.files.used && (!st.in_use() || snapshots_left == 0)))
          return leave(self, std::move(reply));
        if (snapshots_left == 0)
          return stays(to_caf({errc::limit_reached, "it is never done with what it does"}));
        keep_and_leave(self, std::move(reply), snapshots_left - 1);
      },
      [stays](caf::error& why) mutable { stays(std::move(why)); });
}

} // namespace

void hand_over(sandbox_pointer self, reply_to<caf::ok_atom> reply) {
  constexpr unsigned most_more_snapshots = 4;
  auto& st = self->state;
  if (st.now == phase::deleting)
    return static_cast<void>(reply.deliver(to_caf(being_deleted)));
  if (may_be_kept(st) && st.options->time->now() < st.stays_until)
    return static_cast<void>(
      reply.deliver(to_caf({errc::limit_reached, "it could not be kept just now"})));
  if (std::exchange(st.leaving, true) && may_be_kept(st))
    return static_cast<void>(reply.deliver(to_caf({errc::limit_reached, "it leaves already"})));
  may_be_kept(st) ? keep_and_leave(self, std::move(reply), most_more_snapshots)
                  : leave(self, std::move(reply));
}

// ---- Deletion

namespace {

/// Whoever still waits for the store is told, since nobody will be here to tell it later.
void end_waiting(sandbox_state& st, const error& why) {
  for (auto& each : std::exchange(st.want_lease, {}))
    each.otherwise(why);
  st.record->abandon(why);
  st.local->abandon(why);
}

} // namespace

void deleted(sandbox_pointer self, const error* why_not) {
  auto& st = self->state;
  if (std::exchange(st.ended, true))
    return;
  st.end_sessions();
  st.instance = {};
  st.release_lease();
  if (st.evicted)
    log::info("sandbox.left", {{"id", st.id->str()}});
  else if (why_not == nullptr)
    log::info("sandbox.deleted", {{"id", st.id->str()}, {"request", st.deletion.id}});
  else
    log::error("sandbox.record_stays",
               {{"id", st.id->str()}, {"reason", why_not->message}, {"request", st.deletion.id}});
  const bool outlived = why_not != nullptr && why_not->code == errc::stale_epoch;
  // In a cluster the record is there, and somebody else's: whoever asks again deletes it there.
  const bool moved = st.evicted || (outlived && st.options->ours);
  // On one node it is that of a later one: of this sandbox nothing is left.
  const bool gone = why_not == nullptr || outlived;
  end_waiting(st, moved ? leaves_node : being_deleted);
  for (auto& each : std::exchange(st.deleting, {}))
    if (moved)
      each.deliver(to_caf(leaves_node));
    else
      gone ? each.deliver(caf::ok_atom::value) : each.deliver(to_caf(*why_not));
  for (auto& each : std::exchange(st.evicting, {}))
    each.deliver(caf::ok_atom::value);
  self->quit();
}

/// The record goes last, so that a crash before it leaves something to be deleted again; and who
/// asked is told if it stays, though nothing runs any more.
void finish_delete(sandbox_pointer self) {
  auto& st = self->state;
  const auto failed = [self](const error& why) { deleted(self, &why); };
  if (!st.evicted && !st.want_lease.empty()) // It would be given to nobody, and held for ever.
    return with_lease(
      self, [self] { finish_delete(self); },
      [self](const error& why) {
        const bool nothing = self->state.record->entries().empty();
        deleted(self, nothing && why.code != errc::stale_epoch ? nullptr : &why);
      });
  if (!st.evicted && st.record->entries().empty())
    return deleted(self, nullptr);
  if (st.evicted) {
    if (st.epoch == 0)
      return deleted(self, nullptr);
    return st.local->destroy([self] { deleted(self, nullptr); }, failed);
  }
  with_lease(
    self,
    [self, failed] {
      self->state.local->destroy(
        [self, failed] {
          const bool persistent = has_snapshots(self->state);
          self->state.record->destroy(
            [self, persistent] {
              if (persistent)
                forget_snapshots(self->state);
              deleted(self, nullptr);
            },
            failed, self->state.deletion);
        },
        failed, self->state.deletion);
    },
    failed);
}

void begin_delete(sandbox_pointer self) {
  auto& st = self->state;
  const auto before = st.now;
  st.become(phase::deleting);
  st.forget_files(being_deleted);
  st.instance.become(instance::passing);
  st.refuse_waiting(st.evicted ? leaves_node : being_deleted);
  pause_settled(self, st.evicted ? leaves_node : being_deleted);
  if (st.place)
    return st.place->destroy(
      [me = self->address(), start = st.start] { tell(me, sandbox_gone{start}); });
  if (before != phase::asleep)
    return; // On its way: sandbox_ready or sandbox_failed comes, and goes on with this.
  if (has_survived(st))
    return end_survivor(self);
  if (st.evicted)
    return finish_delete(self);
  // Nothing runs, but there may be a record.
  st.record->load([self] { finish_delete(self); },
                  [self](const error& why) { deleted(self, &why); }, st.deletion);
}

// ---- Alarms

namespace {

/// It is over, or has failed and will come again.
void attended(sandbox_pointer self, reply_to<caf::ok_atom> reply, const error* why_not) {
  --self->state.alarms;
  if (why_not == nullptr)
    reply.deliver(caf::ok_atom::value);
  else
    reply.deliver(to_caf(*why_not));
  rest(self);
}

/// Nothing in this version sets such a one. Another version's must not ring for ever.
void silence(const sandbox_state& st, object_storage& kept, const alarm_due& due) {
  log::warning("sandbox.unknown_alarm", {{"id", st.id->str()}, {"object", due.whose.object}});
  if (due.whose.object.empty())
    kept.alarm_over(due);
  else
    kept.write({{std::string{alarm_keys} + due.whose.object, std::nullopt}});
}

/// Answered when that is durable, so that it comes again if it does not come to that.
void expire(sandbox_pointer self, reply_to<caf::ok_atom> reply) {
  auto& st = self->state;
  --st.alarms;
  st.deleting.push_back(std::move(reply));
  if (st.now == phase::deleting)
    return;
  log::info("sandbox.expired", {{"id", st.id->str()}});
  if (st.place && is_alive(st.now))
    st.options->figures->ended(sandbox_end::deleted);
  begin_delete(self);
}

} // namespace

void attend(sandbox_pointer self, alarm_due due, reply_to<caf::ok_atom> reply) {
  auto& st = self->state;
  if (st.now == phase::deleting)
    return static_cast<void>(
      reply.deliver(to_caf({errc::sandbox_not_running, "it is being deleted"})));
  ++st.alarms;
  auto& kept = due.whose.where == kept_in::cluster ? *st.record : *st.local;
  const auto done = [self, reply] { attended(self, reply, nullptr); };
  const auto failed = [self, reply](const error& why) { attended(self, reply, &why); };
  kept.load(
    [=, &kept] {
      if (due.whose.object.empty() && !kept.is_set(due))
        return done();
      const bool own = due.whose.where == kept_in::cluster && due.whose.object.empty();
      const auto left = own ? time_left(self->state) : std::nullopt;
      if (left && left->count() <= 0)
        return expire(self, reply);
      with_lease(
        self,
        [=, &kept] {
          if (due.whose.where == kept_in::node && due.whose.object.empty())
            expire_results(self, due);
          else if (left) // One of the two clocks says so: not yet.
            kept.set_alarm(*left);
          else
            silence(self->state, kept, due);
          kept.when_durable(done, failed);
        },
        failed);
    },
    failed);
}

} // namespace insula::actors::inside_sandbox

#include "actors/sandbox/sandbox_state.hpp"

#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

namespace insula::actors::inside_sandbox {

// ---- The lease

void with_lease(sandbox_pointer self, std::function<void()> then,
                std::function<void(const error&)> otherwise) {
  auto& st = self->state;
  if (st.ended)
    return otherwise(why_not_asked(st));
  if (st.epoch != 0)
    return then();
  st.want_lease.push_back({std::move(then), std::move(otherwise)});
  if (st.want_lease.size() > 1)
    return;
  st.options->leases->acquire(
    st.id->str(), [me = self->address(), number = ++st.lease_number](result<storage::epoch> held) {
      tell(me, lease_settled{number, std::move(held)});
    });
}

void heard(sandbox_pointer self, lease_settled& said) {
  auto& st = self->state;
  if (said.number != st.lease_number)
    return;
  if (said.outcome) {
    st.epoch = *said.outcome;
    st.record->write_at(st.epoch);
    st.local->write_at(st.epoch);
  }
  for (auto& each : std::exchange(st.want_lease, {}))
    said.outcome ? each.then() : each.otherwise(said.outcome.reason());
}

void rest(sandbox_pointer self) {
  auto& st = self->state;
  if (st.now != phase::asleep || st.alarms > 0 || st.errands > 0)
    return;
  if (st.epoch == 0) // It was never taken: nobody need own what has no record.
    st.options->leases->release(st.id->str(), 0);
  st.release_lease();
  if (st.hibernates)
    self->send(self, hibernate_atom::value); // Later: something may have come meanwhile.
}

// ---- Starting: the lease, then the record and the sandbox side by side; running with both. Of one
// that has run before, the record first: a sandbox that a later server finds is of the start that
// is recorded.

void fall_asleep(sandbox_pointer self, const error& why) {
  auto& st = self->state;
  const bool was_to_pause = st.freezing && st.pausing && st.pausing->wanted;
  ++st.start;
  st.place.reset();
  st.making = false;
  st.end_sessions();
  st.recorded = false;
  st.forget_files(why);
  st.mounts = mounts_state::unknown;
  st.mount_deaths.clear();
  st.adopting = false;
  st.slot.reset();
  st.warm = false;
  st.instance = {};
  st.freezing = false;
  st.idle_noted = false; // What is noted was of the start that is over.
  if (st.now != phase::deleting)
    st.become(phase::asleep);
  st.refuse_waiting(why);
  if (was_to_pause)
    pause_settled(self, why);
  rest(self);
}

namespace {

/// The start is over: what it took is counted, and told to those who wait.
void account_for_start(sandbox_state& st) {
  const auto now = steady_clock::now();
  for (const auto& each : st.waiting)
    if (each.context.times)
      each.context.times->waited(now - each.since);
  if (st.adopting)
    return;
  auto& watch = st.watch;
  constexpr std::chrono::nanoseconds not_needed{-1};
  const auto made = st.warm
                      ? runtime::creation_times{not_needed, not_needed, not_needed, not_needed,
                                                not_needed, not_needed, not_needed}
                      : st.place->creation();
  watch.part(start_phase::slot) = made.slot;
  watch.part(start_phase::cgroup) = made.cgroup;
  watch.part(start_phase::disk) = made.disk;
  watch.part(start_phase::namespaces) = made.namespaces;
  watch.part(start_phase::layers) = made.layers;
  watch.part(start_phase::mounts) = made.mounts;
  watch.part(start_phase::agent) = made.agent;
  watch.part(start_phase::claim) = st.warm ? watch.made_ours - watch.claimed : not_needed;
  watch.part(start_phase::ready) = now - watch.began;
  st.options->figures->started(watch.parts);
  if (watch.whose.times)
    watch.whose.times->started(watch.parts);
}

/// It may stand still, which was for want of use if it is not paused.
void stands_as_left(sandbox_pointer self) {
  auto& st = self->state;
  if (is_held(st))
    return freeze(self);
  st.freezing = true;
  static_cast<void>(thaw(self));
}

void perhaps_running(sandbox_pointer self) {
  auto& st = self->state;
  if (st.now != phase::starting || !st.place || !st.recorded ||
      !network_settled(self, [self] { perhaps_running(self); }) ||
      !files_settled(self, [self] { perhaps_running(self); }) ||
      !mounts_settled(self, [self] { perhaps_running(self); }))
    return;
  st.become(phase::running);
  st.instance.become(instance::assigned);
  account_for_start(st);
  const bool adopted = std::exchange(st.adopting, false), wanted = !st.waiting.empty();
  if (adopted)
    take_over_all(self);
  log::info("sandbox.running",
            {{"id", st.id->str()}, {"epoch", st.epoch}, {"request", st.watch.whose.id}});
  if (adopted)
    stands_as_left(self);
  if (is_held(st))
    return expect_resume(self);
  serve_waiting(self);
  touch(self);
  if (adopted && !wanted)
    recall_idle(self);
}

void end_unwanted(runtime::sandbox& place, instance_count::place instance) {
  place.destroy([kept = std::make_shared<instance_count::place>(std::move(instance))] {});
}

/// Nobody wanted it any more when the engine was done with it. Its place, if that was kept.
instance_count::place take_given_up(sandbox_pointer self, std::uint64_t start) {
  auto given_up = self->state.given_up.extract(start);
  if (!given_up)
    return {};
  rest(self); // It may have stayed for that.
  return std::move(given_up.mapped());
}

} // namespace

void give_up_start(sandbox_pointer self, const error& why) {
  auto& st = self->state;
  // It counts until it is gone.
  if (st.place)
    end_unwanted(*st.place, std::move(st.instance));
  else if (st.making)
    st.given_up.emplace(st.start, std::move(st.instance));
  fall_asleep(self, why);
}

namespace {

/// `before`: the engine was to be asked after it.
void record_failed(sandbox_pointer self, const error& why, bool before) {
  auto& st = self->state;
  log::error("sandbox.record_failed",
             {{"id", st.id->str()}, {"reason", why.message}, {"request", st.watch.whose.id}});
  st.options->figures->not_started(start_failure::record);
  if (st.now == phase::deleting)
    return before ? finish_delete(self) : void(); // Else what is under way there ends it.
  give_up_start(self, {why.code, "its record could not be written: " + why.message});
}

/// A sandbox starts from the image that it was made from, whatever new ones start from by now.
std::string image_name(const sandbox_state& st) {
  const auto* recorded = st.record->find("image");
  return recorded == nullptr ? st.options->image_name : *recorded;
}

/// The output gate of a start: nobody learns of the sandbox before its record would survive a
/// crash. `make`: what is to follow it; none: the engine has been asked already.
void write_record(sandbox_pointer self, const std::function<void()>& make) {
  auto& st = self->state;
  const auto now_ms = std::to_string(st.options->time->unix_ms());
  std::vector<storage::change> changes{{"image", image_name(st)}, {"started_ms", now_ms}};
  if (st.record->find("created_ms") == nullptr)
    changes.push_back({"created_ms", now_ms});
  note_files(st, changes);
  st.watch.record_sent = steady_clock::now();
  st.record->write(std::move(changes), {}, st.watch.whose);
  st.record->when_durable(
    [self, make, start = st.start] {
      auto& state = self->state;
      if (start != state.start)
        return;
      state.watch.part(start_phase::record) = steady_clock::now() - state.watch.record_sent;
      state.recorded = true;
      if (!make)
        perhaps_running(self);
      else if (state.now == phase::deleting)
        finish_delete(self);
      else
        make();
    },
    [self, make, start = st.start](const error& why) {
      if (start == self->state.start)
        record_failed(self, why, make != nullptr);
    });
}

/// The one that has survived, the one that was claimed, or else a new one.
void make_sandbox(sandbox_pointer self) {
  auto& st = self->state;
  st.making = true;
  runtime::sandbox_spec spec;
  spec.name = st.id->str();
  spec.host_name = st.id->str().substr(0, 63);
  spec.image = st.image->layers;
  spec.limits = limits_of(st);
  spec.network = st.network = st.told_network = recorded_network(st);
  spec.epoch = st.epoch;
  runtime::sandbox_listener listener;
  // One that comes to life after nobody wants it any more is removed again.
  listener.on_ready = [me = self->address(),
                       start = st.start](std::shared_ptr<runtime::sandbox> place) {
    if (const auto target = caf::actor_cast<sandbox_impl>(me))
      caf::anon_send(target, sandbox_ready{start, std::move(place)});
    else
      place->destroy([] {});
  };
  listener.on_failed = [me = self->address(), start = st.start](error why) {
    tell(me, sandbox_failed{start, std::move(why)});
  };
  const auto for_memory = std::make_shared<bool>(false);
  listener.on_forced_end = [for_memory] { *for_memory = true; };
  listener.on_ended = [me = self->address(), start = st.start, for_memory] {
    tell(me, sandbox_ended{start, *for_memory});
  };
  listener.on_mount_ended = [self, me = self->address(),
                             start = st.start](const std::string& path) {
    tell(me, engine_answered{[self, start, path] { mount_died(self, start, path); }});
  };
  if (st.adopting)
    return st.options->engine->adopt(spec, std::move(listener));
  st.warm = st.slot != nullptr;
  if (st.warm) {
    auto [place, instance] = std::exchange(st.slot, nullptr)->take();
    st.instance = std::move(instance);
    failpoint("sandbox.claim");
    return place->claim({spec.host_name, spec.limits, spec.name, spec.network, spec.epoch},
                        std::move(listener));
  }
  st.options->figures->cold_start();
  st.options->engine->create(std::move(spec), std::move(listener));
}

/// Of what the engine has refused.
start_failure failure_of(const error& why) {
  switch (why.code) {
    case errc::capacity_exceeded: return start_failure::capacity;
    case errc::machine_full: return start_failure::machine;
    default: return start_failure::launch;
  }
}

/// A warm one from the pool, or its own place among the node's instances.
void take_place(sandbox_pointer self, std::function<void()> then) {
  auto& st = self->state;
  if (auto full = st.options->engine->refuses_more()) {
    st.options->figures->not_started(failure_of(*full));
    return fall_asleep(self, *full);
  }
  const auto cold = [self, then] {
    auto& state = self->state;
    if (!state.instance) { // It may have that of a warm one that was dead.
      auto own = state.options->instances->take();
      if (!own) {
        state.options->figures->not_started(start_failure::capacity);
        return fall_asleep(self, own.reason());
      }
      state.instance = std::move(*own);
    }
    then();
  };
  if (!st.options->pool || st.claims >= limits::claims_in_vain)
    return cold();
  st.watch.claimed = steady_clock::now();
  const auto answered = [self, then, cold, start = st.start](const claim_answer& got) {
    auto& state = self->state;
    if (start != state.start)
      return; // What was claimed is removed with the answer.
    if (state.now == phase::deleting)
      return finish_delete(self);
    state.slot = got.slot;
    if (got.slot)
      return then();
    if (!got.again)
      return cold();
    ++state.claims;
    take_place(self, then);
  };
  self
    ->request(st.options->pool, caf::infinite,
              claim_slot{{image_name(st), st.options->engine_name}, st.watch.whose})
    .then(answered, [answered](const caf::error&) {
      answered({nullptr, true}); // It went just when it was to be asked.
    });
}

void take_lease_and_make(sandbox_pointer self);

void choose_image_and_make(sandbox_pointer self) {
  auto& st = self->state;
  st.adopting = has_survived(st);
  if (st.adopting && (st.record->find("started_ms") == nullptr || has_half_its_files(st)))
    return end_survivor(self); // Nobody was ever told of it.
  const auto name = image_name(st);
  const auto at = st.options->images.find(name);
  static const sandbox_image
    unknown; // It runs without, and all that is missing is its environment.
  if (at == st.options->images.end() && !st.adopting) {
    log::error("sandbox.no_image",
               {{"id", st.id->str()}, {"image", name}, {"request", st.watch.whose.id}});
    st.options->figures->not_started(start_failure::image);
    return fall_asleep(
      self, {errc::launch_failed, "its image \"" + name +
                                    "\" is not there; once it has been imported again and the node "
                                    "restarted, the sandbox starts"});
  }
  st.image = at == st.options->images.end() ? &unknown : &at->second;
  if (!st.adopting)
    return take_place(self, [self] { take_lease_and_make(self); });
  st.instance = st.options->instances->take_over();
  take_lease_and_make(self);
}

/// Its record is there. A paused one is not made; those who want that wait.
void make_unless_paused(sandbox_pointer self) {
  auto& st = self->state;
  if (!is_held(st) || has_survived(st))
    return choose_image_and_make(self);
  st.become(phase::asleep);
  expect_resume(self);
  rest(self);
}

void take_lease_and_make(sandbox_pointer self) {
  self->state.watch.lease_asked = steady_clock::now();
  with_lease(
    self,
    [self] {
      auto& state = self->state;
      state.watch.part(start_phase::lease) = steady_clock::now() - state.watch.lease_asked;
      if (state.now == phase::deleting)
        return state.adopting ? end_survivor(self) : finish_delete(self);
      const auto make = [self] { make_sandbox(self); };
      if (!state.adopting && state.record->find("started_ms") != nullptr)
        return write_record(self, make);
      if (state.adopting)
        state.recorded = true; // By whoever has started it.
      else
        write_record(self, nullptr);
      make();
    },
    [self](const error& why) {
      auto& state = self->state;
      if (state.now == phase::deleting)
        return finish_delete(self);
      state.options->figures->not_started(start_failure::lease);
      fall_asleep(self, why);
    });
}

} // namespace

/// For the first of those who wait.
void begin_start(sandbox_pointer self) {
  auto& st = self->state;
  st.become(phase::starting);
  ++st.start;
  st.knows_all = true;
  st.watch = {};
  st.watch.began = steady_clock::now();
  if (!st.waiting.empty())
    st.watch.whose = st.waiting.front().context;
  st.claims = 0;
  st.record->load([self] { make_unless_paused(self); },
                  [self](const error& why) {
                    self->state.options->figures->not_started(start_failure::record);
                    fall_asleep(self, why);
                  },
                  st.watch.whose);
}

void when_running(sandbox_pointer self, waiting_request request) {
  auto& st = self->state;
  if (st.leaving || st.now == phase::deleting)
    return request.refuse(why_not_asked(st));
  switch (st.now) {
    case phase::running:
    case phase::frozen:
      if (is_held(st))
        break;
      if (marked_first(
            self, request.context, [=] { when_running(self, request); }, request.refuse))
        return;
      if (const auto awake = thaw(self); !awake)
        return request.refuse(awake.reason());
      meet(st, request.context);
      request.go();
      return touch(self);
    case phase::deleting:
    case phase::asleep:
    case phase::starting:
    case phase::stopping: break;
  }
  if (st.waiting.size() >= limits::waiting_per_sandbox)
    return request.refuse({errc::limit_reached, "too many requests wait for this sandbox"});
  request.since = steady_clock::now();
  request.until = st.options->time->now() + limits::pause_patience;
  st.waiting.push_back(std::move(request));
  if (is_held(st))
    expect_resume(self);
  else if (st.now == phase::asleep)
    begin_start(self);
}

void heard(sandbox_pointer self, sandbox_ready& said) {
  auto& st = self->state;
  if (said.start != st.start)
    return end_unwanted(*said.place, take_given_up(self, said.start));
  failpoint("sandbox.made");
  st.making = false;
  st.place = std::move(said.place);
  st.watch.made_ours = steady_clock::now();
  if (st.now == phase::deleting)
    return st.place->destroy(
      [me = self->address(), start = st.start] { tell(me, sandbox_gone{start}); });
  perhaps_running(self);
}

void heard(sandbox_pointer self, sandbox_failed& said) {
  auto& st = self->state;
  if (said.start != st.start)
    return static_cast<void>(take_given_up(self, said.start));
  st.making = false;
  if (st.warm && st.now == phase::starting && said.why.code != errc::stale_epoch) {
    st.options->figures->slot_died();
    log::warning("pool.dead_slot", {{"reason", said.why.message}, {"request", st.watch.whose.id}});
    ++st.claims;
    return take_place(self, [self] { make_sandbox(self); }); // With its place, since it is gone.
  }
  // The engine's own ceiling is told as the node's.
  if (said.why.code == errc::capacity_exceeded)
    said.why.message = st.options->instances->now();
  log::error("sandbox.not_started",
             {{"id", st.id->str()}, {"reason", said.why.message}, {"request", st.watch.whose.id}});
  st.options->figures->not_started(failure_of(said.why));
  if (st.now == phase::deleting) // One that was not to be had may still be there.
    return has_survived(st) ? end_survivor(self) : finish_delete(self);
  fall_asleep(self, said.why);
}

void heard(sandbox_pointer self, const survivor_ended& said) {
  auto& st = self->state;
  if (said.start != st.start)
    return;
  if (st.now == phase::deleting)
    return st.record->load([self] { finish_delete(self); },
                           [self](const error& why) { deleted(self, &why); }, st.deletion);
  if (st.waiting.empty())
    return fall_asleep(self, {errc::sandbox_not_running, "it was never used"});
  make_unless_paused(self);
}

} // namespace insula::actors::inside_sandbox

#include "actors/pool.hpp"

#include "actors/protocol/errors.hpp"
#include "actors/weak_sender.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <map>

namespace insula::actors {

namespace {

// What becomes of a slot, by its number.
struct slot_warm {
  std::uint64_t slot;
};
struct slot_refused {
  std::uint64_t slot;
  error why;
};
struct slot_over {
  std::uint64_t slot;
  bool by_itself;
};

using round_atom = caf::atom_constant<caf::atom("round")>;
using refill_atom = caf::atom_constant<caf::atom("refill")>;

using pool_impl = node_pool_actor::extend<caf::reacts_to<slot_warm>, caf::reacts_to<slot_refused>,
                                          caf::reacts_to<slot_over>, caf::reacts_to<round_atom>,
                                          caf::reacts_to<refill_atom>>;

} // namespace
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::slot_warm)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::slot_refused)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::slot_over)

namespace insula::actors {

namespace {

enum class slot_phase : std::uint8_t { starting, warm, ending };

struct pooled {
  slot_actor actor;
  slot_phase now = slot_phase::starting;
};

/// Somebody waits for the end of what was warm.
struct emptying {
  caf::typed_response_promise<caf::ok_atom> reply;
  std::size_t left = 0;
};

struct pool_state {
  static inline const char* name = "pool";
  pool_options options;
  pool_settings settings;
  std::map<std::uint64_t, pooled> slots; ///< By age: a greater number is younger.
  std::uint64_t last_slot = 0;

  bool timer_set = false;
  bool in_round = false;
  std::size_t checks = 0;  ///< Of this round, that have not been answered.
  bool refill_set = false; ///< Soon.
  bool paused = false;     ///< Nothing more is started before the next round or claim.
  bool exhausted = false;  ///< The engine has no room: the same, whoever claims.

  std::map<std::uint64_t, emptying> emptyings;
  std::uint64_t last_emptying = 0;

  std::size_t count(slot_phase which) const {
    return static_cast<std::size_t>(std::count_if(
      slots.begin(), slots.end(), [which](const auto& each) { return each.second.now == which; }));
  }

  ~pool_state() {
    if (options.figures)
      options.figures->warm_are(0);
    for (auto& [number, each] : emptyings)
      each.reply.deliver(to_caf({errc::sandbox_not_running, "the node is going down"}));
    for (auto& [number, each] : slots)
      caf::anon_send_exit(each.actor, caf::exit_reason::user_shutdown);
  }
};

using pool_pointer = pool_impl::stateful_pointer<pool_state>;

void count_warm(pool_pointer self) {
  const auto& st = self->state;
  st.options.figures->warm_are(static_cast<std::int64_t>(st.count(slot_phase::warm)));
}

void arm(pool_pointer self) {
  auto& st = self->state;
  const bool idle = st.settings.target == 0 && st.slots.empty();
  if (st.timer_set || st.in_round || idle)
    return;
  st.timer_set = true;
  self->delayed_send(self, st.settings.refresh_interval, round_atom::value);
}

/// False: the node's limit is reached.
bool start_slot(pool_pointer self) {
  auto& st = self->state;
  auto place = st.options.instances->take();
  if (!place)
    return false;
  const auto number = ++st.last_slot;
  const auto me = self->address();
  slot_listener listener;
  listener.on_ready = [me, number] { post_to<pool_impl>(me, slot_warm{number}); };
  listener.on_failed = [me, number](error why) {
    post_to<pool_impl>(me, slot_refused{number, std::move(why)});
  };
  listener.on_ended = [me, number] { post_to<pool_impl>(me, slot_over{number, true}); };
  listener.on_gone = [me, number] { post_to<pool_impl>(me, slot_over{number, false}); };
  st.slots.emplace(number, pooled{spawn_slot(self->system(), *st.options.engine, st.options.spec,
                                             std::move(*place), std::move(listener))});
  st.options.figures->slot_started();
  return true;
}

void end_round(pool_pointer self) {
  auto& st = self->state;
  if (!std::exchange(st.in_round, false))
    return;
  arm(self);
}

/// The next batch, once the one before has come to an end.
void fill(pool_pointer self) {
  auto& st = self->state;
  if (st.checks > 0 || st.count(slot_phase::starting) > 0)
    return;
  const auto warm = st.count(slot_phase::warm);
  std::size_t missing = st.settings.target > warm ? st.settings.target - warm : 0;
  if (st.exhausted || st.paused)
    missing = 0;
  std::size_t started = 0;
  for (const auto most = std::min<std::size_t>(missing, st.settings.scale_batch_size);
       started < most && start_slot(self);)
    ++started;
  if (started == 0)
    end_round(self);
}

/// Ends it, and forgets it once it is gone.
void retire(pool_pointer self, std::uint64_t number) {
  auto& each = self->state.slots.at(number);
  each.now = slot_phase::ending;
  caf::anon_send(each.actor, delete_atom::value); // It tells by itself when it is gone.
}

void adjust(pool_pointer self) {
  auto& st = self->state;
  auto warm = st.count(slot_phase::warm);
  for (auto at = st.slots.begin(); at != st.slots.end() && warm > st.settings.target; ++at)
    if (at->second.now == slot_phase::warm) {
      retire(self, at->first);
      --warm;
    }
  count_warm(self);
  fill(self);
}

void check(pool_pointer self, std::uint64_t number, const slot_actor& slot) {
  ++self->state.checks;
  const auto answered = [self, number](bool lives) {
    auto& st = self->state;
    const auto at = st.slots.find(number);
    if (!lives && at != st.slots.end() && at->second.now == slot_phase::warm) {
      log::warning("pool.dead_slot", {{"reason", "its agent does not answer"}});
      st.options.figures->slot_died();
      retire(self, number);
    }
    if (--st.checks == 0)
      adjust(self);
  };
  // One that has left the pool meanwhile answers with an error, and is none of ours any more.
  self->request(slot, limits::check_patience, check_atom::value)
    .then([answered](caf::ok_atom) { answered(true); },
          [answered](const caf::error&) { answered(false); });
}

void begin_round(pool_pointer self) {
  auto& st = self->state;
  st.timer_set = false;
  if (std::exchange(st.in_round, true))
    return;
  st.exhausted = st.paused = false;
  for (const auto& [number, each] : st.slots)
    if (each.now == slot_phase::warm)
      check(self, number, each.actor);
  if (st.checks == 0)
    adjust(self);
}

/// Who has claimed one is served before its successor is begun.
void refill_soon(pool_pointer self) {
  auto& st = self->state;
  if (st.settings.target == 0 || std::exchange(st.refill_set, true))
    return;
  self->delayed_send(self, limits::refill_pause, refill_atom::value);
}

/// Answers once all that was warm is gone.
void empty(pool_pointer self, caf::typed_response_promise<caf::ok_atom> reply) {
  auto& st = self->state;
  st.paused = true;
  const auto which = ++st.last_emptying;
  auto& mine = st.emptyings[which] = {std::move(reply), 1};
  const auto one_less = [self, which] {
    auto& all = self->state.emptyings;
    if (const auto at = all.find(which); --at->second.left == 0)
      all.extract(at).mapped().reply.deliver(caf::ok_atom::value);
  };
  for (auto& [number, each] : st.slots) {
    if (each.now == slot_phase::starting)
      continue;
    each.now = slot_phase::ending;
    ++mine.left;
    // What does not go in time stays in the list, where nobody is given it.
    self->request(each.actor, limits::destroy_patience, delete_atom::value)
      .then([one_less](caf::ok_atom) { one_less(); },
            [one_less](const caf::error&) { one_less(); });
  }
  count_warm(self);
  one_less();
}

pool_stats stats_of(const pool_state& st) {
  auto& instances = *st.options.instances;
  return {static_cast<std::uint32_t>(st.count(slot_phase::warm)), instances.of(instance::assigned),
          instances.limit(), st.settings};
}

pool_impl::behavior_type pool(pool_pointer self, pool_options options) {
  self->state.options = std::move(options);
  return {
    [self](status_atom) {
      arm(self);
      return stats_of(self->state);
    },
    [self](const prime_pool& said) {
      auto& st = self->state;
      if (said.settings)
        st.settings = *said.settings;
      if (said.settings && !st.in_round)
        begin_round(self);
      arm(self);
      return caf::ok_atom::value;
    },
    [self](empty_atom) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      arm(self);
      empty(self, reply);
      return reply;
    },
    [self](claim_slot& wanted) -> caf::result<claim_answer> {
      auto& st = self->state;
      if (!(wanted.key == st.options.key))
        return claim_answer{};
      refill_soon(self);
      const auto oldest = std::find_if(st.slots.begin(), st.slots.end(), [](const auto& each) {
        return each.second.now == slot_phase::warm;
      });
      if (oldest == st.slots.end())
        return claim_answer{};
      const auto slot = oldest->second.actor;
      st.slots.erase(oldest);
      count_warm(self);
      st.options.figures->slot_claimed();
      return self->delegate(slot, std::move(wanted));
    },
    [self](const slot_warm& said) {
      auto& st = self->state;
      if (const auto at = st.slots.find(said.slot);
          at != st.slots.end() && at->second.now == slot_phase::starting)
        at->second.now = slot_phase::warm;
      count_warm(self);
      fill(self);
    },
    [self](const slot_refused& said) {
      auto& st = self->state;
      log::error("pool.not_started", {{"reason", said.why.message}});
      st.slots.erase(said.slot);
      st.paused = true;
      st.exhausted |=
        said.why.code == errc::capacity_exceeded || said.why.code == errc::machine_full;
      fill(self);
    },
    [self](const slot_over& said) {
      auto& st = self->state;
      if (st.slots.erase(said.slot) == 0)
        return; // It was claimed while it ended: who has it hears of it.
      if (said.by_itself && !*st.options.node_ends) {
        log::warning("pool.dead_slot", {{"reason", "its first process is gone"}});
        st.options.figures->slot_died();
      }
      count_warm(self);
    },
    [self](round_atom) { begin_round(self); },
    [self](refill_atom) {
      auto& st = self->state;
      st.refill_set = false;
      if (!st.in_round)
        st.paused = false;
      fill(self);
    },
  };
}

} // namespace

node_pool_actor spawn_pool(caf::actor_system& system, pool_options options) {
  return system.spawn(pool, std::move(options));
}

} // namespace insula::actors

#include "actors/slot.hpp"

#include "actors/protocol/errors.hpp"
#include "actors/weak_sender.hpp"

#include <caf/all.hpp>

#include <map>
#include <vector>

namespace insula::actors {

namespace {

// Facts, from the engine's threads.
struct slot_ready {
  std::shared_ptr<runtime::sandbox> it;
};
struct slot_failed {
  error why;
};
using ended_atom = caf::atom_constant<caf::atom("ended")>;
using gone_atom = caf::atom_constant<caf::atom("gone")>;
using pong_atom = caf::atom_constant<caf::atom("pong")>;

using slot_impl = slot_actor::extend<caf::reacts_to<slot_ready>, caf::reacts_to<slot_failed>,
                                     caf::reacts_to<ended_atom>, caf::reacts_to<gone_atom>,
                                     caf::reacts_to<pong_atom, std::uint64_t /* which check */>>;

} // namespace
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::slot_ready)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::slot_failed)

namespace insula::actors {

namespace {

using ok_promise = caf::typed_response_promise<caf::ok_atom>;

struct slot_state {
  static inline const char* name = "slot";
  slot_listener listener;
  instance_count::place instance;
  std::shared_ptr<runtime::sandbox> it; ///< Null: it starts.
  bool ending = false;
  std::vector<ok_promise> want_end;
  std::map<std::uint64_t, ok_promise> checks; ///< One in a round, and gone with the second.
  std::uint64_t last_check = 0;

  ~slot_state() {
    const error why{errc::sandbox_not_running, "it is not in the pool any more"};
    for (auto& each : want_end)
      each.deliver(to_caf(why));
    for (auto& [number, each] : checks)
      each.deliver(to_caf(why));
  }
};

using slot_pointer = slot_impl::stateful_pointer<slot_state>;

runtime::sandbox_listener forward_to(const caf::actor_addr& me) {
  runtime::sandbox_listener listener;
  listener.on_ready = [me](std::shared_ptr<runtime::sandbox> it) {
    if (const auto target = caf::actor_cast<slot_impl>(me))
      caf::anon_send(target, slot_ready{std::move(it)});
    else
      it->destroy([] {});
  };
  listener.on_failed = [me](error why) { post_to<slot_impl>(me, slot_failed{std::move(why)}); };
  listener.on_ended = [me] { post_to<slot_impl>(me, ended_atom::value); };
  return listener;
}

void end(slot_pointer self) {
  self->state.it->destroy([me = self->address()] { post_to<slot_impl>(me, gone_atom::value); });
}

/// Nothing of it is left. Its place is free before anybody hears of it.
void over(slot_pointer self, const std::function<void()>& told) {
  auto& st = self->state;
  st.instance = {};
  st.it.reset();
  told();
  for (auto& each : std::exchange(st.want_end, {}))
    each.deliver(caf::ok_atom::value);
  self->quit();
}

slot_impl::behavior_type slot(slot_pointer self, runtime::engine* engine,
                              runtime::sandbox_spec spec,
                              const std::shared_ptr<instance_count::place>& instance,
                              slot_listener listener) {
  self->state.listener = std::move(listener);
  self->state.instance = std::move(*instance);
  engine->create(std::move(spec), forward_to(self->address()));
  return {
    [self](const claim_slot&) -> claim_answer {
      auto& st = self->state;
      if (!st.it || st.ending)
        return {nullptr, true};
      st.instance.become(instance::passing);
      self->quit();
      return {std::make_shared<claimed_slot>(std::move(st.it), std::move(st.instance)), false};
    },
    [self](check_atom) -> caf::result<caf::ok_atom> {
      auto& st = self->state;
      auto reply = self->make_response_promise<caf::ok_atom>();
      const auto number = ++st.last_check;
      st.checks.emplace(number, reply);
      if (st.it)
        st.it->ping(
          [me = self->address(), number] { post_to<slot_impl>(me, pong_atom::value, number); });
      return reply;
    },
    [self](delete_atom) -> caf::result<caf::ok_atom> {
      auto& st = self->state;
      auto reply = self->make_response_promise<caf::ok_atom>();
      st.want_end.push_back(reply);
      st.instance.become(instance::passing);
      if (!std::exchange(st.ending, true) && st.it)
        end(self);
      return reply;
    },
    [self](slot_ready& said) {
      auto& st = self->state;
      st.it = std::move(said.it);
      if (st.ending)
        return end(self);
      st.instance.become(instance::warm);
      st.listener.on_ready();
    },
    [self](slot_failed& said) {
      over(self, [&] { self->state.listener.on_failed(std::move(said.why)); });
    },
    [self](ended_atom) {
      const auto& st = self->state;
      over(self, st.ending ? st.listener.on_gone : st.listener.on_ended);
    },
    [self](gone_atom) { over(self, self->state.listener.on_gone); },
    [self](pong_atom, std::uint64_t number) {
      if (auto asked = self->state.checks.extract(number))
        asked.mapped().deliver(caf::ok_atom::value);
    },
  };
}

} // namespace

slot_actor spawn_slot(caf::actor_system& system, runtime::engine& engine,
                      runtime::sandbox_spec spec, instance_count::place instance,
                      slot_listener listener) {
  return system.spawn(slot, &engine, std::move(spec),
                      std::make_shared<instance_count::place>(std::move(instance)),
                      std::move(listener));
}

} // namespace insula::actors

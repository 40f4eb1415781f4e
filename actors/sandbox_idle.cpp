#include "actors/sandbox_state.hpp"

#include "base/log.hpp"

namespace insula::actors::inside_sandbox {

// What nobody uses stands still, and later is stopped. The clock is looked at now and then; no
// request sets a timer.

namespace {

/// Until it stands still it is running, so whoever comes meanwhile meets no third state.
void freeze(sandbox_pointer self) {
  auto& st = self->state;
  if (st.freezing || st.cannot_freeze)
    return;
  st.freezing = true;
  st.place->freeze(
    [me = self->address(), start = st.start, number = ++st.last_freezing](bool good) {
      tell(me, stood_still{start, number, good});
    });
}

} // namespace

void heard(sandbox_pointer self, const stood_still& said) {
  auto& st = self->state;
  if (said.start != st.start || said.number != st.last_freezing || !st.freezing ||
      st.now != phase::running)
    return; // It has been used meanwhile, or ends.
  st.freezing = false;
  st.cannot_freeze = !said.good;
  st.options->figures->froze(said.good);
  if (!said.good)
    return log::info("sandbox.not_frozen", {{"id", st.id->str()}});
  st.become(phase::frozen);
  log::info("sandbox.frozen", {{"id", st.id->str()}});
}

result<void> thaw(sandbox_pointer self) {
  auto& st = self->state;
  if (!st.freezing && st.now != phase::frozen)
    return {};
  const auto began = steady_clock::now();
  if (const auto done = st.place->thaw(); !done) {
    log::error("sandbox.not_thawed", {{"id", st.id->str()}, {"reason", done.reason().message}});
    return done.reason();
  }
  st.freezing = false;
  if (st.now == phase::frozen) {
    st.options->figures->thawed(steady_clock::now() - began);
    st.become(phase::running);
    log::info("sandbox.thawed", {{"id", st.id->str()}});
  }
  return {};
}

void look(sandbox_pointer self) {
  auto& st = self->state;
  st.look_set = false;
  if (!is_alive(st.now))
    return;
  const auto now = st.options->time->now();
  if (st.in_use())
    st.last_used = now;
  const auto idle = now - st.last_used;
  const auto& ladder = st.options->ladder;
  switch (step_due(ladder, st.now, idle)) {
    case idle_step::none: break;
    case idle_step::freeze: freeze(self); break;
    case idle_step::stop: return stop(self);
  }
  if (const auto left = until_next_step(ladder, idle))
    look_later(self, *left);
}

} // namespace insula::actors::inside_sandbox

#include "actors/sandbox/sandbox_state.hpp"

#include "base/log.hpp"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace insula::actors::inside_sandbox {

// What nobody uses stands still, and later is stopped. The clock is looked at now and then; no
// request sets a timer. A paused one is left as it is.

namespace {

/// A paused one that has been adopted and does not stand still.
constexpr std::chrono::seconds frozen_again_after{10};

} // namespace

/// Until it stands still it is running, so whoever comes meanwhile meets no third state.
void freeze(sandbox_pointer self) {
  auto& st = self->state;
  if (st.freezing || st.cannot_freeze)
    return;
  if (st.files.token)
    st.files.token->cancel(); // Who reads them would stand still as well.
  st.freezing = true;
  st.place->freeze(
    [me = self->address(), start = st.start, number = ++st.last_freezing](bool good) {
      tell(me, stood_still{start, number, good});
    });
}

void heard(sandbox_pointer self, const stood_still& said) {
  auto& st = self->state;
  if (said.start != st.start || said.number != st.last_freezing || !st.freezing ||
      st.now != phase::running)
    return; // It has been used meanwhile, or ends.
  st.freezing = false;
  const bool idle = !is_held(st);
  if (idle) {
    st.cannot_freeze = !said.good;
    st.options->figures->froze(said.good);
  }
  if (said.good)
    st.become(phase::frozen);
  log::info(said.good ? "sandbox.frozen" : "sandbox.not_frozen", {{"id", st.id->str()}});
  if (idle)
    return;
  if (st.pausing && st.pausing->wanted)
    return said.good
             ? write_pause(self)
             : pause_settled(self, error{errc::io_failed, "what runs in it does not stand still"});
  if (!said.good && !st.look_set)
    look_later(self, frozen_again_after);
}

result<void> thaw(sandbox_pointer self, bool needed) {
  auto& st = self->state;
  if (!is_alive(st.now) || (!st.freezing && st.now != phase::frozen))
    return {};
  const auto began = steady_clock::now();
  if (const auto done = st.place->thaw(); !done) {
    log::error("sandbox.not_thawed", {{"id", st.id->str()}, {"reason", done.reason().message}});
    return done.reason();
  }
  st.freezing = false;
  if (st.now == phase::frozen) {
    if (needed)
      st.options->figures->thawed(steady_clock::now() - began);
    st.become(phase::running);
    log::info("sandbox.thawed", {{"id", st.id->str()}});
  }
  return {};
}

// ---- For the server after this one

namespace {

constexpr const char* idle_key = "idle_since";

/// Shorter ones are not worth a write.
constexpr std::chrono::seconds noted_after{10};

/// Since when it is idle, on the steady clock: whoever adopts it runs on the same start of the
/// machine. The start of the sandbox tells it from an earlier one.
std::string idle_note(const sandbox_state& st, std::chrono::steady_clock::time_point since) {
  std::ostringstream words;
  words << st.record->value("started_ms") << ' ' << since.time_since_epoch().count() << ' '
        << st.options->time->boot();
  return words.str();
}

std::optional<std::chrono::steady_clock::time_point> read_idle_note(const sandbox_state& st) {
  std::istringstream words{st.local->value(idle_key)};
  std::string start;
  std::chrono::steady_clock::rep count = 0;
  if (!(words >> start >> count))
    return std::nullopt;
  const std::chrono::steady_clock::time_point since{std::chrono::steady_clock::duration{count}};
  if (st.local->value(idle_key) != idle_note(st, since))
    return std::nullopt;
  return since;
}

void note_idle(sandbox_pointer self) {
  self->state.local->load(
    [self, since = self->state.last_used] {
      auto& st = self->state;
      if (!is_alive(st.now) || st.idle_noted || st.last_used != since)
        return;
      st.idle_noted = true;
      st.local->write({{idle_key, idle_note(st, since)}});
    },
    [](const error&) {}); // Then the next server's clock begins with it.
}

} // namespace

void forget_idle(sandbox_pointer self) {
  if (std::exchange(self->state.idle_noted, false))
    self->state.local->write({{idle_key, std::nullopt}});
}

void recall_idle(sandbox_pointer self) {
  self->state.local->load(
    [self, touched = self->state.last_used] {
      auto& st = self->state;
      const auto since = read_idle_note(st);
      if (!since)
        return;
      st.idle_noted = true;
      if (st.last_used != touched)
        return forget_idle(self); // It has been used meanwhile.
      st.last_used = std::min(*since, touched);
      look(self);
    },
    [](const error&) {});
}

void look(sandbox_pointer self) {
  auto& st = self->state;
  st.look_set = false;
  if (!is_alive(st.now))
    return;
  if (is_held(st))
    return st.now == phase::running ? freeze(self) : void();
  const auto now = st.options->time->now();
  if (st.in_use())
    st.last_used = now;
  const auto idle = now - st.last_used;
  const auto& ladder = st.options->ladder;
  if (!st.idle_noted && idle >= noted_after)
    note_idle(self);
  const auto step = step_due(ladder, st.now, idle);
  if (step != idle_step::none && kept_first(self, step))
    return;
  switch (step) {
    case idle_step::none: break;
    case idle_step::freeze: freeze(self); break;
    case idle_step::stop: return stop(self);
  }
  if (const auto left = until_next_step(ladder, idle))
    look_later(self, *left);
}

} // namespace insula::actors::inside_sandbox

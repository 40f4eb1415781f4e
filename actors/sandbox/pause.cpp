#include "actors/sandbox/sandbox_state.hpp"

#include "base/log.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace insula::actors::inside_sandbox {

// Who pauses a sandbox has it stand still until he resumes it: nobody else thaws it, starts it or
// stops it for being idle. It is frozen first and marked in its record then; resumed, the other way
// round. So whatever ends the server, a mark that is durable is one of a sandbox that stood still,
// and the next server leaves it so.

namespace {

constexpr const char* paused_key = "paused";

/// Whether the mark is in its record, durable or on its way to that.
bool is_marked(const sandbox_state& st) {
  return st.record->find(paused_key) != nullptr;
}

/// All that runs, and those who have waited.
result<void> go_on(sandbox_pointer self) {
  auto& st = self->state;
  if (is_alive(st.now)) {
    if (auto awake = thaw(self, false); !awake) {
      st.refuse_waiting(awake.reason());
      return awake;
    }
    serve_waiting(self);
    touch(self);
  } else if (st.now == phase::asleep && !st.waiting.empty()) {
    begin_start(self);
  }
  return {};
}

} // namespace

bool is_paused(const sandbox_state& st) {
  return st.pausing ? !st.pausing->wanted : is_marked(st);
}

bool is_held(const sandbox_state& st) {
  return st.pausing || is_marked(st);
}

void pause_settled(sandbox_pointer self, result<void> outcome) {
  auto& st = self->state;
  if (!st.pausing)
    return; // It is being deleted, and whoever has asked was told.
  auto change = *std::exchange(st.pausing, std::nullopt);
  if (outcome) {
    log::info(change.wanted ? "sandbox.paused" : "sandbox.resumed",
              {{"id", st.id->str()}, {"request", change.context.id}});
    if (change.wanted)
      forget_idle(self); // That it stands still is not for want of use.
  }
  if (!is_held(st))
    if (const auto awake = go_on(self); outcome && !awake)
      outcome = awake;
  if (outcome)
    change.reply.deliver(describe(st));
  else
    change.reply.deliver(to_caf(outcome.reason()));
  change.over();
}

void write_pause(sandbox_pointer self) {
  const auto failed = [self](const error& why) { pause_settled(self, why); };
  with_lease(
    self,
    [self, failed] {
      auto& st = self->state;
      if (!st.pausing)
        return;
      const auto mark = st.pausing->wanted ? std::optional<std::string>{"1"} : std::nullopt;
      st.record->write({{paused_key, mark}}, {}, st.pausing->context);
      st.record->when_durable([self] { pause_settled(self, {}); }, failed);
    },
    failed);
}

void set_paused(sandbox_pointer self, const pause_sandbox& wanted,
                reply_to<sandbox_description> reply) {
  with_record(self, reply, wanted.context, [=](errand mine) {
    auto& st = self->state;
    auto to = reply;
    if (!exists(st)) {
      to.deliver(describe(st));
      return mine.over();
    }
    if (st.pausing || is_marked(st) == wanted.paused) {
      to.deliver(to_caf({errc::invalid_request, wanted.paused ? "the sandbox is paused already"
                                                              : "the sandbox is not paused"}));
      return mine.over();
    }
    if (wanted.paused && lives(st) && !is_alive(st.now)) { // Once it is there.
      when_running(self, reply, wanted.context, [=] { set_paused(self, wanted, reply); });
      return mine.over();
    }
    st.pausing = pause_change{wanted.paused, wanted.context, reply, [mine] { mine.over(); }};
    if (!wanted.paused || st.now != phase::running)
      return write_pause(self); // Nothing has to stand still first.
    st.cannot_freeze = false;
    freeze(self);
  });
}

// ---- Those who wait

void expect_resume(sandbox_pointer self) {
  auto& st = self->state;
  if (st.waiting.empty() || std::exchange(st.resume_expected, true))
    return;
  const auto left = st.waiting.front().until - st.options->time->now();
  self->delayed_send(self, std::max<std::chrono::nanoseconds>(left, {}), patience_over_atom::value);
}

void refuse_impatient(sandbox_pointer self) {
  auto& st = self->state;
  st.resume_expected = false;
  if (!is_held(st))
    return;
  const auto now = st.options->time->now();
  while (!st.waiting.empty() && st.waiting.front().until <= now) {
    const auto refused = std::move(st.waiting.front());
    st.waiting.pop_front();
    refused.refuse({errc::deadline_exceeded, "the sandbox is paused"});
  }
  expect_resume(self);
  rest(self);
}

void serve_waiting(sandbox_pointer self) {
  auto& st = self->state;
  auto all = std::exchange(st.waiting, {});
  while (!all.empty() && !is_held(st)) {
    const auto next = std::move(all.front());
    all.pop_front();
    if (marked_first(
          self, next.context, [=] { when_running(self, next); }, next.refuse))
      continue;
    meet(st, next.context);
    next.go();
  }
  st.waiting.insert(st.waiting.begin(), std::make_move_iterator(all.begin()),
                    std::make_move_iterator(all.end()));
}

} // namespace insula::actors::inside_sandbox

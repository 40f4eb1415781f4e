#include "actors/sandbox/idle.hpp"

#include "actors/sandbox/pause.hpp"
#include "actors/sandbox/teardown.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace insula::actors::inside_sandbox {

namespace {

/// A paused one that has been adopted and does not stand still.
constexpr std::chrono::seconds frozen_again_after{10};

/// Shorter ones are not worth a write.
constexpr std::chrono::seconds noted_after{10};

constexpr const char* idle_key = "idle_since";

} // namespace

void idle::stand_still() {
  if (freezing_ || cannot_freeze_)
    return;
  freezing_ = true;
  engine_sandbox()->freeze(
    [this, start = core_.start(), number = ++last_freezing_, post = core_.post()](bool good) {
      post([=, this] { on_still(start, number, good); });
    });
}

void idle::freeze_again() {
  cannot_freeze_ = false;
  stand_still();
}

void idle::on_still(std::uint64_t start, std::uint64_t number, bool good) {
  if (start != core_.start() || number != last_freezing_ || !freezing_ ||
      core_.now() != phase::running)
    return; // It has been used meanwhile, or ends.
  freezing_ = false;
  const bool unused = !core_.is_held();
  if (unused) {
    cannot_freeze_ = !good;
    options().figures->froze(good);
  }
  if (good)
    core_.become(phase::frozen);
  log::info(good ? "sandbox.frozen" : "sandbox.not_frozen", {{"id", core_.id()}});
  if (unused)
    return;
  if (pause_.awaits_stillness())
    return pause_.on_still(good);
  if (!good && !scheduled_)
    schedule_check(frozen_again_after);
}

result<void> idle::thaw(bool needed) {
  if (!is_alive(core_.now()) || (!freezing_ && core_.now() != phase::frozen))
    return {};
  const auto began = steady_clock::now();
  if (const auto done = engine_sandbox()->thaw(); !done) {
    log::error("sandbox.not_thawed", {{"id", core_.id()}, {"reason", done.reason().message}});
    return done.reason();
  }
  freezing_ = false;
  if (core_.now() == phase::frozen) {
    if (needed)
      options().figures->thawed(steady_clock::now() - began);
    core_.become(phase::running);
    log::info("sandbox.thawed", {{"id", core_.id()}});
  }
  return {};
}

void idle::stand_as_left() {
  if (core_.is_held())
    return stand_still();
  freezing_ = true;
  static_cast<void>(thaw());
}

// ---- For the server after this one

/// Since when it is idle, on the steady clock: the server that adopts it runs on the same start of
/// the machine. The start of the sandbox tells it from an earlier one.
std::string idle::note_text(steady_clock::time_point since) const {
  std::ostringstream words;
  words << record().value(started_key) << ' ' << since.time_since_epoch().count() << ' '
        << options().time->boot();
  return words.str();
}

std::optional<steady_clock::time_point> idle::read_note() const {
  std::istringstream words{local().value(idle_key)};
  std::string start;
  steady_clock::rep count = 0;
  if (!(words >> start >> count))
    return std::nullopt;
  const steady_clock::time_point since{steady_clock::duration{count}};
  if (local().value(idle_key) != note_text(since))
    return std::nullopt;
  return since;
}

void idle::write_note() {
  local().load(
    [this, since = last_used_] {
      if (!is_alive(core_.now()) || noted_ || last_used_ != since)
        return;
      noted_ = true;
      local().write({{idle_key, note_text(since)}});
    },
    [](const error&) {}); // Then the next server's clock begins with it.
}

void idle::forget_note() {
  if (std::exchange(noted_, false))
    local().write({{idle_key, std::nullopt}});
}

void idle::recall() {
  local().load(
    [this, before = last_used_] {
      const auto since = read_note();
      if (!since)
        return;
      noted_ = true;
      if (last_used_ != before)
        return forget_note(); // It has been used meanwhile.
      last_used_ = std::min(*since, before);
      check();
    },
    [](const error&) {});
}

// ---- The ladder

void idle::schedule_check(std::chrono::nanoseconds left) {
  // Or sooner, as core::after() wants it.
  constexpr std::chrono::nanoseconds longest = std::chrono::seconds{20};
  scheduled_ = true;
  // Nor later than the first step: it can be used, and be idle again, while this is on its way.
  const auto first = until_next_step(options().ladder, {}).value_or(longest);
  core_.after(std::min({left, longest, first}), [this] { check(); });
}

void idle::used() {
  last_used_ = options().time->now();
  forget_note();
  cannot_freeze_ = false;
  const auto left = until_next_step(options().ladder, {});
  if (!scheduled_ && is_alive(core_.now()) && left)
    schedule_check(*left);
}

void idle::check() {
  scheduled_ = false;
  if (!is_alive(core_.now()))
    return;
  if (core_.is_held())
    return core_.now() == phase::running ? stand_still() : void();
  const auto now = options().time->now();
  if (core_.in_use())
    last_used_ = now;
  const auto unused = now - last_used_;
  const auto& ladder = options().ladder;
  if (!noted_ && unused >= noted_after)
    write_note();
  const auto step = step_due(ladder, core_.now(), unused);
  if (step != idle_step::none && core_.delays(step))
    return;
  switch (step) {
    case idle_step::none: break;
    case idle_step::freeze: stand_still(); break;
    case idle_step::stop: return teardown_.stop();
  }
  if (const auto left = until_next_step(ladder, unused))
    schedule_check(*left);
}

void idle::stopped(const error&) {
  freezing_ = false;
  noted_ = false; // The note was of the start that is over.
}

} // namespace insula::actors::inside_sandbox

#include "actors/sandbox/pause.hpp"

#include "actors/record_keys.hpp"
#include "actors/sandbox/gate.hpp"
#include "actors/sandbox/idle.hpp"
#include "actors/sandbox/startup.hpp"
#include "base/log.hpp"

#include <utility>

namespace insula::actors::inside_sandbox {

/// The mark is in its record, durable or on its way to that.
bool pause::is_marked() const {
  return record().find(paused_key) != nullptr;
}

void pause::describe(sandbox_description& into) const {
  into.paused = change_ ? !change_->wanted : is_marked();
}

/// The processes go on, and so do the requests that wait.
result<void> pause::go_on() {
  if (is_alive(core_.now())) {
    if (auto awake = idle_.thaw(false); !awake) {
      gate_.refuse_all(awake.reason());
      return awake;
    }
    gate_.serve();
    core_.mark_used();
  } else if (core_.now() == phase::asleep && !gate_.empty()) {
    startup_.begin();
  }
  return {};
}

void pause::settle_change(result<void> outcome) {
  if (!change_)
    return; // It is being deleted, and the client was told.
  const auto done = *std::exchange(change_, std::nullopt);
  if (outcome) {
    log::info(done.wanted ? "sandbox.paused" : "sandbox.resumed",
              {{"id", core_.id()}, {"request", done.context.id}});
    if (done.wanted)
      idle_.forget_note(); // That it stands still is not for want of use.
  }
  if (!core_.is_held())
    if (const auto awake = go_on(); outcome && !awake)
      outcome = awake;
  if (outcome)
    done.to.deliver(core_.describe());
  else
    done.to.fail(outcome.reason());
}

void pause::write_mark() {
  const auto failed = [this](const error& why) { settle_change(why); };
  core_.with_lease(
    [this, failed] {
      if (!change_)
        return;
      const auto mark = change_->wanted ? std::optional<std::string>{"1"} : std::nullopt;
      record().write({{paused_key, mark}}, change_->context);
      record().when_durable([this] { settle_change({}); }, failed);
    },
    failed);
}

void pause::set(const pause_sandbox& wanted, const reply<sandbox_description>& to) {
  core_.with_record(to, wanted.context, [this, wanted](const reply<sandbox_description>& mine) {
    if (!core_.exists())
      return mine.deliver(core_.describe());
    if (change_ || is_marked() == wanted.paused)
      return mine.fail({errc::invalid_request, wanted.paused ? "the sandbox is paused already"
                                                             : "the sandbox is not paused"});
    if (wanted.paused && core_.lives() && !is_alive(core_.now())) // Once it is there.
      return core_.when_running(mine, wanted.context, [=, this] { set(wanted, mine); });
    change_ = change{wanted.paused, wanted.context, mine};
    if (!wanted.paused || core_.now() != phase::running)
      return write_mark(); // Nothing has to stand still first.
    change_->freezing = true;
    idle_.freeze_again();
  });
}

void pause::on_still(bool good) {
  change_->freezing = false;
  if (good)
    write_mark();
  else
    settle_change(error{errc::io_failed, "what runs in it does not stand still"});
}

void pause::stopped(const error& why) {
  if (awaits_stillness())
    settle_change(why);
}

void pause::ends(const error& why) {
  if (const auto last = std::exchange(change_, std::nullopt))
    last->to.fail(why);
}

} // namespace insula::actors::inside_sandbox

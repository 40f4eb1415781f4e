#pragma once

#include "actors/sandbox/core.hpp"

namespace insula::actors::inside_sandbox {

class pause;
class teardown;

/// A sandbox that is not used stands still, and later is stopped. The clock is looked at now and
/// then; no request sets a timer. A paused one is left as it is.
class idle final : public part {
public:
  idle(core& of, pause& hold, teardown& ends)
      : part(of)
      , pause_(hold)
      , teardown_(ends) {}

  /// Has it stand still, unless it is known not to do so. Until it does it is running: a request
  /// that comes meanwhile meets no third state.
  void stand_still();
  /// The same, also if it did not stand still before.
  void freeze_again();
  /// It has been told to stand still, and runs until it does.
  bool freezing() const { return freezing_; }
  /// It goes on, if it stands still. Errors: those of runtime::sandbox; it stays as it is.
  /// `needed`: by a request that has to wait for that.
  result<void> thaw(bool needed = true);
  /// It was adopted, and may stand still: for want of use, if it is not paused.
  void stand_as_left();

  /// Looks at the clock: the step of the ladder that is due is taken.
  void check();
  bool check_scheduled() const { return scheduled_; }
  void schedule_check(std::chrono::nanoseconds left);

  /// It was adopted, and is not used: it is idle since when an earlier server has noted it.
  void recall();
  /// It is idle no longer: what is noted of it for the next server goes.
  void forget_note();

  void used() override;
  void stopped(const error& why) override;

private:
  void on_still(std::uint64_t start, std::uint64_t number, bool good);
  void write_note();
  std::string note_text(steady_clock::time_point since) const;
  std::optional<steady_clock::time_point> read_note() const;

  pause& pause_;
  teardown& teardown_;
  steady_clock::time_point last_used_;
  bool noted_ = false; ///< last_used_ is in the node's store, for the server after this one.
  std::uint64_t last_freezing_ = 0;
  bool freezing_ = false;
  bool cannot_freeze_ = false; ///< It did not stand still. Tried again once it has been used.
  bool scheduled_ = false;     ///< One check at a time: it looks at last_used_ when it comes.
};

} // namespace insula::actors::inside_sandbox

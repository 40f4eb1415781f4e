#pragma once

#include "actors/sandbox/core.hpp"

namespace insula::actors::inside_sandbox {

class gate;
class idle;
class startup;

/// A paused sandbox stands still until it is resumed: nothing else thaws it, starts it or stops it
/// for being idle. It is frozen first and marked in its record then; resumed, the other way round.
/// So a mark that is durable is one of a sandbox that stood still, however the server ended, and
/// the next server leaves it so.
class pause final : public part {
public:
  pause(core& of, gate& requests, idle& ladder, startup& starts)
      : part(of)
      , gate_(requests)
      , idle_(ladder)
      , startup_(starts) {}

  void set(const pause_sandbox& wanted, const reply<sandbox_description>& to);
  /// It is about to be paused, or resumed.
  bool changing() const { return change_.has_value(); }
  /// It is about to be paused and was told to stand still, for that alone.
  bool awaits_stillness() const { return change_ && change_->freezing; }
  /// It stands still; if not, it goes on.
  void on_still(bool good);

  void describe(sandbox_description& into) const override;
  void stopped(const error& why) override;
  void deleting(const error& why) override { settle_change(why); }
  void ends(const error& why) override;
  bool is_held() const override { return change_ || is_marked(); }

private:
  struct change {
    bool wanted; ///< Paused.
    request_context context;
    reply<sandbox_description> to;
    bool freezing = false; ///< Until it stands still, or does not.
  };

  bool is_marked() const;
  /// It stands still, as far as it runs: now it is marked. Or it goes on: now the mark goes.
  void write_mark();
  /// The mark is durable, or nothing has come of the change.
  void settle_change(result<void> outcome);
  result<void> go_on();

  gate& gate_;
  idle& idle_;
  startup& startup_;
  std::optional<change> change_;
};

} // namespace insula::actors::inside_sandbox

#pragma once

#include "actors/sandbox/core.hpp"

#include <deque>

namespace insula::actors::inside_sandbox {

class startup;

/// The one gate that every request passes that needs the running sandbox. It starts the sandbox,
/// has it go on, and waits for it to be resumed, for limits::pause_patience. A request to a sandbox
/// that is over, of which this actor is still to be told, waits for the next one.
class gate final : public part {
public:
  gate(core& of, startup& starts)
      : part(of)
      , startup_(starts) {}

  void when_running(waiting_request request);
  /// The sandbox runs: each request in its turn, unless one of them has it paused.
  void serve();
  /// The sandbox is held: requests that wait are refused when their patience is over.
  void expect_resume();
  void refuse_all(const error& why);

  bool empty() const { return waiting_.empty(); }
  /// The context of the request that makes the start necessary; empty: no request waits.
  request_context first() const {
    return waiting_.empty() ? request_context{} : waiting_.front().context;
  }
  /// For figures: the requests have waited until now.
  void account(steady_clock::time_point now) const;
  /// The requests wait for the start after the one that ends.
  std::deque<waiting_request> take() { return std::exchange(waiting_, {}); }
  void wait_again(std::deque<waiting_request> all) { waiting_ = std::move(all); }

  void stopped(const error& why) override { refuse_all(why); }
  void deleting(const error& why) override { refuse_all(why); }
  void ends(const error& why) override { refuse_all(why); }
  bool may_hibernate() const override { return waiting_.empty(); }

private:
  void refuse_impatient();

  startup& startup_;
  std::deque<waiting_request> waiting_;
  bool resume_expected_ = false; ///< The next look at their patience is on its way.
};

} // namespace insula::actors::inside_sandbox

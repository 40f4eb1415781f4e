#include "runtime/last_totals.hpp"

#include <utility>

namespace insula::runtime {

last_totals::last_totals()
    : state_(std::make_shared<state>()) {}

std::optional<network_totals> last_totals::get(const std::function<void(tell_fn)>& ask,
                                               std::chrono::milliseconds patience) {
  std::unique_lock hold{state_->guard};
  const bool asks = !std::exchange(state_->asked, true);
  if (!asks && state_->last)
    return state_->last;
  if (asks) {
    state_->since = std::chrono::steady_clock::now();
    hold.unlock();
    const auto over = [of = state_](void*) {
      const std::lock_guard held{of->guard};
      of->asked = false;
      of->answered.notify_all();
    };
    // It is over when nobody can answer any more, too.
    std::shared_ptr<void> question{state_.get(), over};
    ask([of = state_, question = std::move(question)](result<network_totals> totals) {
      const std::lock_guard held{of->guard};
      if (totals)
        of->last = *totals;
    });
    hold.lock();
  }
  state_->answered.wait_until(hold, state_->since + patience, [&] { return !state_->asked; });
  return state_->last;
}

} // namespace insula::runtime

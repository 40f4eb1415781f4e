#include "http/transport/watchdog.hpp"

#include <boost/asio/steady_timer.hpp>

namespace insula::http {

struct watchdog::state : std::enable_shared_from_this<state> {
  state(const boost::asio::any_io_executor& executor, std::function<void()> then)
      : timer(executor)
      , strike(std::move(then)) {}

  void arm(time_point at) {
    wakes_at = at;
    timer.expires_at(at); // Cancels the wait before.
    timer.async_wait([weak = weak_from_this()](const boost::system::error_code& ec) {
      if (auto self = weak.lock(); self && !ec)
        self->wake();
    });
  }

  void wake() {
    wakes_at = time_point::max();
    if (deadline == time_point::max())
      return;
    if (std::chrono::steady_clock::now() < deadline)
      return arm(deadline);
    deadline = time_point::max();
    strike();
  }

  boost::asio::steady_timer timer;
  std::function<void()> strike;
  time_point deadline = time_point::max(); ///< max: none.
  time_point wakes_at = time_point::max(); ///< When the timer looks at the deadline.
};

watchdog::watchdog(boost::asio::any_io_executor executor, std::function<void()> strike)
    : state_(std::make_shared<state>(std::move(executor), std::move(strike))) {}

watchdog::~watchdog() {
  state_->deadline = time_point::max();
  state_->timer.cancel();
}

void watchdog::expires_at(time_point when) {
  state_->deadline = when;
  if (when < state_->wakes_at)
    state_->arm(when);
}

void watchdog::disarm() {
  state_->deadline = time_point::max();
}

} // namespace insula::http

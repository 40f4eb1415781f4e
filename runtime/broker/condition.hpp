#pragma once

#include "runtime/broker/stream.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace insula::runtime::broker {

/// Something that tasks of one thread wait for. Who waits looks again when it is told: it may be
/// told without need.
class condition {
public:
  explicit condition(const boost::asio::any_io_executor& on)
      : timer_(on, boost::asio::steady_timer::time_point::max()) {}

  task<void> wait() {
    boost::system::error_code ignored;
    co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
  }
  void tell() { timer_.cancel(); }

private:
  boost::asio::steady_timer timer_;
};

} // namespace insula::runtime::broker

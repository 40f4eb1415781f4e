#pragma once

#include <boost/asio/any_io_executor.hpp>

#include <chrono>
#include <functional>
#include <memory>

namespace insula::http {

/// A deadline that is moved often and strikes rarely. Moving it further away costs no timer
/// operation. Not synchronised: used on one strand, which is also where it strikes.
class watchdog {
public:
  using time_point = std::chrono::steady_clock::time_point;

  watchdog(boost::asio::any_io_executor executor, std::function<void()> strike);
  ~watchdog();
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

  void expires_at(time_point when);
  void expires_after(std::chrono::milliseconds patience) {
    expires_at(std::chrono::steady_clock::now() + patience);
  }
  void disarm();

private:
  struct state;
  std::shared_ptr<state> state_;
};

} // namespace insula::http

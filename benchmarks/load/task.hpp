#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <utility>

/// What every coroutine of the generator is made of. All of one thread's run in one io_context, so
/// nothing here is locked.
namespace insula::load {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;
using error_code = boost::system::error_code;

template <class T = void>
using task = asio::awaitable<T>;

/// What a coroutine waits with where trouble is no exception.
inline auto into(error_code& failed) {
  return asio::redirect_error(asio::use_awaitable, failed);
}

/// Waits; not at all if that time has passed.
inline task<> sleep_until(asio::io_context& io, clock::time_point when) {
  asio::steady_timer timer{io, when};
  error_code ignored;
  co_await timer.async_wait(into(ignored));
}

/// Tasks that run side by side, and their common end. Has to live until wait() has returned.
class task_group {
public:
  explicit task_group(asio::io_context& io)
      : io_(io)
      , ended_(io, clock::time_point::max()) {}
  task_group(const task_group&) = delete;
  task_group& operator=(const task_group&) = delete;

  void start(task<> what) {
    ++open_;
    asio::co_spawn(io_, std::move(what), [this](const std::exception_ptr& thrown) {
      if (thrown && !thrown_)
        thrown_ = thrown;
      if (--open_ == 0)
        ended_.cancel();
    });
  }

  std::size_t open() const { return open_; }

  /// Until all have ended. Throws what the first of them has thrown.
  task<> wait() {
    while (open_ > 0) {
      error_code ignored;
      co_await ended_.async_wait(into(ignored));
    }
    if (thrown_)
      std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

private:
  asio::io_context& io_;
  asio::steady_timer ended_;
  std::size_t open_ = 0;
  std::exception_ptr thrown_;
};

} // namespace insula::load

#include "base/io_pool.hpp"

#include "base/log.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <csignal>
#include <exception>
#include <future>
#include <pthread.h>

namespace insula {

namespace {

/// Of this thread, if it is one of a pool's.
struct position {
  const io_pool* pool = nullptr;
  boost::asio::io_context* context = nullptr;
};
thread_local position current;

} // namespace

io_pool::io_pool(unsigned threads) {
  for (unsigned i = 0; i < std::max(1u, threads); ++i)
    workers_.push_back(std::make_unique<worker>());
  // A context opens what it waits by with its first timer or socket. A leak would look the same.
  for (const auto& each : workers_)
    boost::asio::steady_timer{each->context};
  for (const auto& each : workers_)
    each->thread = std::thread{[this, &mine = *each] { run(mine); }};
}

io_pool::~io_pool() {
  for (const auto& each : workers_) {
    each->stay.reset();
    each->context.stop();
  }
  for (const auto& each : workers_)
    each->thread.join();
  bool more = true;
  while (more) {
    more = false;
    for (const auto& each : workers_) {
      each->context.restart();
      try {
        more |= each->context.poll() > 0;
      } catch (const std::exception& failure) {
        log::error("io.handler_failed", {{"why", failure.what()}});
        more = true;
      }
    }
  }
  // A handler of one context holds timers and sockets of others. To drop it may hand over a last
  // thing, which the second round drops.
  for (int round = 0; round < 2; ++round)
    for (const auto& each : workers_)
      each->context.shutdown();
}

void io_pool::settle() {
  for (const auto& each : workers_) {
    std::promise<void> done;
    boost::asio::post(each->context, [&done] { done.set_value(); });
    done.get_future().get();
  }
}

void io_pool::run(worker& mine) {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::pthread_setname_np(::pthread_self(), "insula-io");
  current = {this, &mine.context};
  while (!mine.context.stopped()) {
    try {
      mine.context.run();
    } catch (const std::exception& failure) {
      log::error("io.handler_failed", {{"why", failure.what()}});
    }
  }
}

boost::asio::io_context& io_pool::here() {
  return current.pool == this ? *current.context : next();
}

boost::asio::io_context& io_pool::next() {
  return workers_[turn_.fetch_add(1, std::memory_order_relaxed) % workers_.size()]->context;
}

} // namespace insula

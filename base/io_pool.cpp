#include "base/io_pool.hpp"

#include "base/log.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <exception>
#include <future>
#include <pthread.h>
#include <utility>

namespace insula {

namespace {

/// Of this thread, if it is one of a pool's.
struct position {
  const io_pool* pool = nullptr;
  boost::asio::io_context* context = nullptr;
};
thread_local position current;

/// What the threads of all pools have done, but for the questions of settle(). A thread counts a
/// handler once that is over.
std::atomic<std::uint64_t> handlers_done = 0;
thread_local bool was_question = false;

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

/// What they had been given may have handed over to another thread, and that one to a third: it
/// has settled when nothing was done between two questions, twice. What goes on for ever is not
/// waited for.
void io_pool::settle() {
  constexpr unsigned most_rounds = 100;
  unsigned quiet = 0;
  for (unsigned round = 0; round < most_rounds && quiet < 2; ++round) {
    const auto before = handlers_done.load();
    for (const auto& each : workers_) {
      std::promise<void> done;
      boost::asio::post(each->context, [&done] {
        was_question = true;
        done.set_value();
      });
      done.get_future().get();
    }
    quiet = handlers_done.load() == before ? quiet + 1 : 0;
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
      while (mine.context.run_one() > 0)
        if (!std::exchange(was_question, false))
          ++handlers_done;
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

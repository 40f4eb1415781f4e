#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

namespace insula {

/// Threads of a node, on which sockets and actors take turns. Each has an io_context of
/// its own, so what belongs to one context never runs twice at a time, and hands over to what
/// belongs to the same one without waking anybody. What runs here must not wait.
///
/// Threads: any.
/// Owner:   whoever builds the node; it outlives everything that is given one of its contexts.
class io_pool {
public:
  explicit io_pool(unsigned threads);

  /// Ends the threads, then runs what had been handed to them by then. What waits for something
  /// else is dropped, before any of the contexts goes.
  ~io_pool();

  io_pool(const io_pool&) = delete;
  io_pool& operator=(const io_pool&) = delete;

  std::size_t size() const { return workers_.size(); }
  boost::asio::io_context& context(std::size_t number) { return workers_[number]->context; }

  /// That of the calling thread; for a thread that is none of the pool's, the next in turn.
  boost::asio::io_context& here();

  /// Each gets its turn.
  boost::asio::io_context& next();

  /// Waits until each thread has done what it had been given by now. Not on one of them.
  void settle();

private:
  struct own_context : boost::asio::io_context {
    own_context()
        : io_context(1) {}
    using io_context::shutdown;
  };
  struct worker {
    own_context context;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> stay{
      context.get_executor()};
    std::thread thread;
  };

  void run(worker& mine);

  std::vector<std::unique_ptr<worker>> workers_;
  std::atomic<std::size_t> turn_ = 0;
};

} // namespace insula

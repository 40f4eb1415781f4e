#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <thread>

namespace insula::runtime {

/// The one thread that reads pipes and control sockets and hears of ends. What it calls must not
/// wait.
class io_thread {
public:
  io_thread();
  ~io_thread(); ///< Runs what has been posted, then ends.

  boost::asio::io_context& context() { return context_; }

  template <class Work>
  void post(Work&& work) {
    boost::asio::post(context_, std::forward<Work>(work));
  }

private:
  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> stay_{
    context_.get_executor()};
  std::thread thread_;
};

} // namespace insula::runtime

#pragma once

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <cstddef>
#include <utility>

namespace insula::http {

/// A few threads that may wait: for disks, for decompression. Any thread may hand them jobs, also
/// those who answer late: what comes after the end is dropped.
///
/// Owner: shared by all that hand over jobs.
class disk_workers {
public:
  explicit disk_workers(std::size_t threads)
      : threads_(threads) {}

  template <class Job>
  void post(Job&& job) {
    if (!ended_)
      boost::asio::post(threads_, std::forward<Job>(job));
  }

  /// Does what it has been given by now, and nothing more.
  void end() {
    ended_ = true;
    threads_.join();
  }

private:
  boost::asio::thread_pool threads_;
  std::atomic<bool> ended_ = false;
};

} // namespace insula::http

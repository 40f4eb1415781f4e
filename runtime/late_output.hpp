#pragma once

#include "base/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <deque>
#include <memory>

namespace insula::runtime {

/// Where the output goes of what commands in a sandbox's sessions have left running: read and
/// thrown away, so that nobody waits for a reader or loses it.
///
/// Threads: that of `io`.
/// Ceiling: limits::late_pipes_per_sandbox; beyond, the oldest is closed.
class late_output : public std::enable_shared_from_this<late_output> {
public:
  explicit late_output(boost::asio::io_context& io)
      : io_(io) {}

  /// A pipe's read end, non-blocking.
  void add(unique_fd pipe);
  void close();

private:
  using descriptor = boost::asio::posix::stream_descriptor;
  void watch(const std::shared_ptr<descriptor>& pipe);
  bool empty(descriptor& pipe);

  boost::asio::io_context& io_;
  std::deque<std::shared_ptr<descriptor>> pipes_;
};

} // namespace insula::runtime

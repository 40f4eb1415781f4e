#pragma once

#include "base/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

namespace insula::runtime {

/// Where the output goes of what commands in a sandbox's sessions have left running: read and
/// thrown away, so that nobody waits for a reader or loses it.
///
/// Threads: that of `io`.
/// Ceiling: limits::late_pipes_per_sandbox; beyond, the oldest is closed.
class late_output : public std::enable_shared_from_this<late_output> {
public:
  /// Whoever keeps the pipes beyond this process.
  struct keeper {
    std::function<std::uint64_t(int pipe)> hold; ///< Answers with its name for it.
    std::function<void(std::uint64_t)> release;
  };

  late_output(boost::asio::io_context& io, keeper with)
      : io_(io)
      , keeper_(std::move(with)) {}

  /// A pipe's read end, non-blocking. `name`: it is kept under that already.
  void add(unique_fd pipe, std::uint64_t name = 0);
  void close();

private:
  struct late_pipe {
    late_pipe(boost::asio::posix::stream_descriptor of, std::uint64_t kept_as)
        : end(std::move(of))
        , name(kept_as) {}

    boost::asio::posix::stream_descriptor end;
    std::uint64_t name;
  };
  void watch(const std::shared_ptr<late_pipe>& pipe);
  bool empty(late_pipe& pipe);
  void let_go(late_pipe& pipe);

  boost::asio::io_context& io_;
  keeper keeper_;
  std::deque<std::shared_ptr<late_pipe>> pipes_;
};

} // namespace insula::runtime

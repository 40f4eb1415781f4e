#pragma once

#include "base/unique_fd.hpp"
#include "runtime/gateway/payer.hpp"
#include "runtime/gateway/pipes.hpp"
#include "runtime/gateway/receive_buffers.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace insula::runtime::gateway {

struct world;

/// Two connected sockets as one connection: what comes from one goes to the other, both ways, by
/// the kernel (splice). Who does not take anything is sent nothing, and who is not read from is
/// held up by his own socket; an end is passed on, a reset as well.
class relay : public std::enable_shared_from_this<relay> {
public:
  /// `inner` is in the sandbox. `bytes_in` and `bytes_out` are counted up, as the sandbox sees
  /// them, and live as long as `on_over` has not been called, which is once, unless cut() comes
  /// before. Its argument says how the far side has failed (an errno) while both still had
  /// something to say, else it is 0.
  relay(world& in, payer by, unique_fd inner, unique_fd outer, std::uint64_t& bytes_in,
        std::uint64_t& bytes_out, std::function<void(int why)> on_over);

  using socket = boost::asio::posix::stream_descriptor;

  void start_in(); ///< To the sandbox.
  void start_out();
  void cut(); ///< Both sides see a reset.

  /// What is in the sandbox, to be looked at as long as start_out() has not been called.
  socket& inner() { return inner_; }

private:
  struct direction {
    socket& from;
    socket& to;
    std::uint64_t* moved;
    std::optional<receive_buffers::one> buffer; ///< Of `from`, until that is closed.
    pipe_pool::pipe through = {};
    bool ended = false;  ///< There is no more to come.
    bool passed = false; ///< And that has been said.
  };

  void pump(direction& way);
  void wait(socket& on, socket::wait_type what, direction& way);
  void fail(const socket& on, int why);
  void end(bool by_reset, int why = 0);

  pipe_pool& pipes_;
  const payer by_;
  socket inner_, outer_;
  direction in_, out_;
  std::function<void(int why)> on_over_;
  bool over_ = false;
};

} // namespace insula::runtime::gateway

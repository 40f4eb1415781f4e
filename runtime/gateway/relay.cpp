#include "runtime/gateway/relay.hpp"

#include "runtime/gateway/sockets.hpp"
#include "runtime/gateway/world.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/socket.h>
#include <utility>

namespace insula::runtime::gateway {

namespace {

/// So that one connection that always has something does not keep the others waiting.
constexpr int moves_per_turn = 16;

ssize_t move(int from, int to, std::size_t most) {
  for (;;) {
    const auto n = ::splice(from, nullptr, to, nullptr, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n >= 0 || errno != EINTR)
      return n;
  }
}

} // namespace

relay::relay(world& in, payer by, unique_fd inner, unique_fd outer, std::uint64_t& bytes_in,
             std::uint64_t& bytes_out, std::function<void(int why)> on_over)
    : pipes_(in.pipes)
    , by_(std::move(by))
    , inner_(in.io, inner.release())
    , outer_(in.io, outer.release())
    , in_{outer_, inner_, &bytes_in, {}}
    , out_{inner_, outer_, &bytes_out, {}}
    , on_over_(std::move(on_over)) {
  for (auto* each : {&in_, &out_})
    each->buffer.emplace(in.buffers, by_.number, each->from.native_handle());
}

void relay::start_in() {
  if (!over_)
    pump(in_);
}

void relay::start_out() {
  if (!over_)
    pump(out_);
}

void relay::wait(socket& on, socket::wait_type what, direction& way) {
  on.async_wait(what, by_.time->wrap([self = shared_from_this(),
                                      &way](const boost::system::error_code& stopped) {
    if (!stopped && !self->over_)
      self->pump(way);
  }));
}

void relay::pump(direction& way) {
  for (int turn = 0; turn < moves_per_turn && (turn < 2 || by_.time->has_time()); ++turn) {
    auto& pipe = way.through;
    if (pipe.holds > 0) {
      const auto n = move(pipe.out.get(), way.to.native_handle(), pipe.holds);
      if (n < 0 && errno == EAGAIN) {
        way.buffer->stands_still();
        return wait(way.to, socket::wait_write, way);
      }
      if (n <= 0)
        return fail(way.to, n < 0 ? errno : 0);
      pipe.holds -= static_cast<std::size_t>(n);
      *way.moved += static_cast<std::uint64_t>(n);
      continue;
    }
    if (way.ended) {
      pipes_.give_back(by_.number, std::exchange(pipe, {}));
      ::shutdown(way.to.native_handle(), SHUT_WR);
      way.passed = true;
      if (in_.passed && out_.passed)
        end(false);
      return;
    }
    if (!pipe && !(pipe = pipes_.take(by_.number)))
      return end(true);
    const auto n = move(way.from.native_handle(), pipe.in.get(), pipe_pool::wanted_bytes);
    if (n < 0 && errno == EAGAIN) {
      pipes_.give_back(by_.number, std::exchange(pipe, {}));
      return wait(way.from, socket::wait_read, way);
    }
    if (n < 0)
      return fail(way.from, errno);
    way.ended = n == 0;
    pipe.holds = static_cast<std::size_t>(n);
    way.buffer->moved(pipe.holds);
  }
  by_.time->add([self = shared_from_this(), &way] {
    if (!self->over_)
      self->pump(way);
  });
}

/// Nothing can be moved from or to that socket.
void relay::fail(const socket& on, int why) {
  const bool is_far = &on == &outer_;
  end(true, is_far && !in_.ended && !out_.ended ? why : 0);
}

void relay::end(bool by_reset, int why) {
  if (std::exchange(over_, true))
    return;
  boost::system::error_code ignored;
  for (auto* each : {&in_, &out_})
    each->buffer.reset();
  for (auto* each : {&inner_, &outer_}) {
    if (by_reset)
      reset_on_close(each->native_handle());
    each->close(ignored);
  }
  for (auto* each : {&in_, &out_})
    pipes_.give_back(by_.number, std::exchange(each->through, {}));
  if (const auto tell = std::exchange(on_over_, nullptr))
    tell(why);
}

void relay::cut() {
  on_over_ = nullptr;
  end(true);
}

} // namespace insula::runtime::gateway

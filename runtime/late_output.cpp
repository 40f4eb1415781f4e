#include "runtime/late_output.hpp"

#include "base/limits.hpp"

#include <array>
#include <cerrno>
#include <unistd.h>
#include <utility>

namespace insula::runtime {

void late_output::add(unique_fd pipe, std::uint64_t name) {
  auto made =
    std::make_shared<late_pipe>(boost::asio::posix::stream_descriptor{io_, pipe.release()}, name);
  if (!empty(*made))
    return let_go(*made); // Nobody holds it any more.
  if (made->name == 0)
    made->name = keeper_.hold(made->end.native_handle());
  if (pipes_.size() >= limits::late_pipes_per_sandbox) {
    let_go(*pipes_.front());
    pipes_.pop_front();
  }
  pipes_.push_back(made);
  watch(made);
}

void late_output::close() {
  boost::system::error_code ignored;
  for (auto& each : std::exchange(pipes_, {}))
    each->end.close(ignored);
}

void late_output::watch(const std::shared_ptr<late_pipe>& pipe) {
  pipe->end.async_wait(pipe->end.wait_read,
                       [self = shared_from_this(), pipe](const boost::system::error_code& stopped) {
                         if (stopped)
                           return;
                         if (self->empty(*pipe))
                           return self->watch(pipe);
                         self->let_go(*pipe);
                         std::erase(self->pipes_, pipe);
                       });
}

void late_output::let_go(late_pipe& pipe) {
  boost::system::error_code ignored;
  pipe.end.close(ignored);
  if (const auto name = std::exchange(pipe.name, 0); name != 0)
    keeper_.release(name);
}

/// At most a few pieces, so that others get their turn. False: the pipe has ended.
bool late_output::empty(late_pipe& pipe) {
  std::array<char, 16 * 1024> nowhere;
  for (int i = 0; i < 16; ++i) {
    const ssize_t n = ::read(pipe.end.native_handle(), nowhere.data(), nowhere.size());
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
      return false;
    if (n < 0)
      return true;
  }
  return true;
}

} // namespace insula::runtime

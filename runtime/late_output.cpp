#include "runtime/late_output.hpp"

#include "base/limits.hpp"

#include <array>
#include <cerrno>
#include <unistd.h>

namespace insula::runtime {

void late_output::add(unique_fd pipe) {
  auto made = std::make_shared<descriptor>(io_, pipe.release());
  if (!empty(*made))
    return; // Nobody holds it any more.
  if (pipes_.size() >= limits::late_pipes_per_sandbox) {
    pipes_.front()->close();
    pipes_.pop_front();
  }
  pipes_.push_back(made);
  watch(made);
}

void late_output::close() {
  for (auto& each : std::exchange(pipes_, {}))
    each->close();
}

void late_output::watch(const std::shared_ptr<descriptor>& pipe) {
  pipe->async_wait(pipe->wait_read,
                   [self = shared_from_this(), pipe](const boost::system::error_code& stopped) {
                     if (stopped)
                       return;
                     if (self->empty(*pipe))
                       self->watch(pipe);
                     else
                       std::erase(self->pipes_, pipe);
                   });
}

/// At most a few pieces, so that others get their turn. False: the pipe has ended.
bool late_output::empty(descriptor& pipe) {
  std::array<char, 16 * 1024> nowhere;
  for (int i = 0; i < 16; ++i) {
    const ssize_t n = ::read(pipe.native_handle(), nowhere.data(), nowhere.size());
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
      return false;
    if (n < 0)
      return true;
  }
  return true;
}

} // namespace insula::runtime

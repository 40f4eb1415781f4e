#include "apps/child_process.hpp"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace insula {

child_process::child_process(pid_t id)
    : id_(id)
    , process_(static_cast<int>(::syscall(SYS_pidfd_open, id, 0))) {}

child_process::child_process(child_process&& other) noexcept
    : id_(std::exchange(other.id_, -1))
    , process_(std::move(other.process_)) {}

child_process& child_process::operator=(child_process&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(process_, other.process_);
  return *this;
}

child_process::~child_process() {
  take_end(std::chrono::milliseconds{0});
}

bool child_process::take_end(std::chrono::milliseconds patience) {
  if (id_ <= 0)
    return true;
  const auto until = std::chrono::steady_clock::now() + patience;
  pollfd ended{process_.get(), POLLIN, 0};
  int some = 0;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::max(until - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration{0}));
    some = ::poll(&ended, 1, static_cast<int>(left.count()));
  } while (some < 0 && errno == EINTR);
  // 0: it runs. Below 0: somebody else has taken its end.
  if (::waitpid(id_, nullptr, WNOHANG) == 0)
    return false;
  id_ = -1;
  process_.reset();
  return true;
}

} // namespace insula

#include "runtime/gateway/pipes.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace insula::runtime::gateway {

pipe_pool::pipe pipe_pool::take() {
  if (!free_.empty()) {
    auto last = std::move(free_.back());
    free_.pop_back();
    return last;
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return {};
  pipe made{unique_fd{ends[1]}, unique_fd{ends[0]}};
  ::fcntl(ends[0], F_SETPIPE_SZ, static_cast<int>(wanted_bytes));
  return made;
}

void pipe_pool::give_back(pipe used) {
  if (used && used.holds == 0 && free_.size() < most_kept)
    free_.push_back(std::move(used));
}

} // namespace insula::runtime::gateway

#include "runtime/gateway/pipes.hpp"

#include "base/limits.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace insula::runtime::gateway {

pipe_pool::pipe_pool(boost::asio::io_context& io)
    : places_(io, {.all = limits::gateway_all_pipes,
                   .kept = limits::gateway_kept_pipes,
                   .few = limits::gateway_few_pipes,
                   .each = limits::gateway_pipes}) {
  while (large_.size() < limits::gateway_all_pipes) {
    large_.push_back(make(wanted_bytes));
    large_.back().is_large = true;
  }
}

pipe_pool::pipe pipe_pool::make(std::size_t bytes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return {};
  pipe made{unique_fd{ends[1]}, unique_fd{ends[0]}};
  ::fcntl(ends[0], F_SETPIPE_SZ, static_cast<int>(bytes));
  return made;
}

pipe_pool::pipe pipe_pool::take(tenant_number by) {
  if (!large_.empty() && places_.take(by, [](bool) {})) {
    auto last = std::move(large_.back());
    large_.pop_back();
    if (last)
      return last;
    places_.give_back(by); // There was none to be had when it was made.
  }
  if (small_.empty())
    return make(small_bytes);
  auto last = std::move(small_.back());
  small_.pop_back();
  return last;
}

void pipe_pool::give_back(tenant_number by, pipe used) {
  if (!used)
    return;
  if (used.is_large) {
    places_.give_back(by);
    if (used.holds > 0) {
      used = make(wanted_bytes);
      used.is_large = true;
    }
    large_.push_back(std::move(used));
  } else if (used.holds == 0 && small_.size() < most_kept) {
    small_.push_back(std::move(used));
  }
}

} // namespace insula::runtime::gateway

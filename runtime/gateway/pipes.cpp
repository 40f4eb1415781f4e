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
  for (std::size_t i = 0; i < limits::gateway_all_pipes; ++i)
    if (auto made = make_large())
      large_.push_back(std::move(made));
}

pipe_pool::pipe pipe_pool::make(std::size_t bytes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return {};
  pipe made{unique_fd{ends[1]}, unique_fd{ends[0]}};
  ::fcntl(ends[0], F_SETPIPE_SZ, static_cast<int>(bytes));
  return made;
}

pipe_pool::pipe pipe_pool::make_large() {
  auto made = make(wanted_bytes);
  made.is_large = true;
  return made;
}

pipe_pool::pipe pipe_pool::take(tenant_number by) {
  if (places_.take(by, [](bool) {})) {
    if (large_.empty()) // There was none to be had when it should have been made.
      if (auto made = make_large())
        return made;
    if (!large_.empty()) {
      auto last = std::move(large_.back());
      large_.pop_back();
      return last;
    }
    places_.give_back(by);
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
      used = {}; // What it holds of the kernel's memory is another one's then.
      used = make_large();
    }
    if (used)
      large_.push_back(std::move(used));
  } else if (used.holds == 0 && small_.size() < most_kept) {
    small_.push_back(std::move(used));
  }
}

} // namespace insula::runtime::gateway

#include "runtime/spawner/disk_jobs.hpp"

#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace insula::runtime::spawner {

bool disk_jobs::start(std::size_t threads) {
  news_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!news_)
    return false;
  try {
    while (workers_.size() < threads)
      workers_.emplace_back([this] { run(); });
  } catch (const std::system_error& why) {
    errno = why.code().value();
    return false;
  }
  return true;
}

void disk_jobs::end() {
  {
    const std::lock_guard hold{guard_};
    ends_ = true;
  }
  changed_.notify_all();
  for (auto& each : workers_)
    each.join();
  workers_.clear();
}

bool disk_jobs::add(work what) {
  {
    const std::lock_guard hold{guard_};
    if (waiting_.size() >= most || workers_.empty())
      return false;
    waiting_.push_back(std::move(what));
  }
  changed_.notify_one();
  return true;
}

void disk_jobs::finish_done() {
  std::uint64_t times = 0;
  [[maybe_unused]] const auto read = ::read(news_.get(), &times, sizeof times);
  std::vector<finish> all;
  {
    const std::lock_guard hold{guard_};
    all.swap(done_);
  }
  for (const auto& each : all)
    each();
}

void disk_jobs::run() {
  std::unique_lock hold{guard_};
  for (;;) {
    changed_.wait(hold, [this] { return ends_ || !waiting_.empty(); });
    if (ends_)
      return;
    const auto next = std::move(waiting_.front());
    waiting_.pop_front();
    hold.unlock();
    auto then = next();
    hold.lock();
    done_.push_back(std::move(then));
    constexpr std::uint64_t once = 1;
    [[maybe_unused]] const auto written = ::write(news_.get(), &once, sizeof once);
  }
}

} // namespace insula::runtime::spawner

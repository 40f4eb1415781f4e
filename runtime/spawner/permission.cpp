#include "runtime/spawner/permission.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <system_error>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

constexpr std::uint64_t second = 1'000'000'000;

std::uint64_t boottime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * second + static_cast<std::uint64_t>(now.tv_nsec);
}

void ring(const unique_fd& bell) {
  constexpr std::uint64_t once = 1;
  [[maybe_unused]] const auto written = ::write(bell.get(), &once, sizeof once);
}

bool take(const unique_fd& from) {
  std::uint64_t count = 0;
  return ::read(from.get(), &count, sizeof count) == sizeof count;
}

} // namespace

bool permission::start() {
  freezer_ = groups_.open_freezer_of_all();
  timer_.reset(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  news_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!timer_ || !stop_ || !news_)
    return false;
  try {
    watcher_ = std::thread{[this] { watch(); }};
  } catch (const std::system_error& why) {
    errno = why.code().value();
    return false;
  }
  return true;
}

permission::~permission() {
  if (!watcher_.joinable())
    return;
  ring(stop_);
  watcher_.join();
}

bool permission::over() const {
  const std::lock_guard hold{guard_};
  return over_;
}

bool permission::take_news() const {
  return take(news_);
}

/// With guard_ held, as the next.
bool permission::has_run_out() const {
  return until_ != 0 && until_ != without_end && boottime_ns() >= until_;
}

void permission::stop_all() {
  groups_.freeze(freezer_.get());
  if (!std::exchange(over_, true))
    ring(news_);
}

void permission::renew(std::uint64_t until) {
  const std::lock_guard hold{guard_};
  until_ = until;
  itimerspec when{}; // Zero: not at all.
  if (until != without_end) {
    when.it_value.tv_sec = static_cast<time_t>(std::min(until / second, std::uint64_t{1} << 33));
    when.it_value.tv_nsec = static_cast<long>(until % second);
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  if (has_run_out())
    return stop_all(); // The watcher sees to it that they do.
  if (std::exchange(over_, false))
    groups_.thaw(freezer_.get());
}

void permission::watch() {
  // Sandboxes that keep every processor busy must not keep us waiting. Where that is not allowed we
  // wait like everybody else.
  const sched_param first{1};
  ::sched_setscheduler(0, SCHED_FIFO, &first);
  constexpr int soon_ms = 1, late_ms = 50;
  int pause_ms = -1; // Until all of them are looked at again.
  for (;;) {
    std::array<pollfd, 2> heard{{{timer_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    ::poll(heard.data(), heard.size(), pause_ms);
    if (heard[1].revents != 0)
      return;
    if (take(timer_))
      pause_ms = -1;
    const std::lock_guard hold{guard_};
    if (!has_run_out() || !freezer_) {
      pause_ms = -1;
      if (has_run_out())
        stop_all();
      continue;
    }
    // V1 has to be told until all of them do, since some may be on their way through the kernel.
    stop_all();
    pause_ms = groups_.all_frozen() ? -1 : std::clamp(2 * pause_ms, soon_ms, late_ms);
  }
}

} // namespace insula::runtime::spawner

#include "runtime/log_account.hpp"

#include <algorithm>
#include <utility>

namespace insula::runtime {

namespace {

/// Between two questions to a disk that has no room.
constexpr std::chrono::seconds pause_when_full{1};

} // namespace

log_account::log_account(std::function<void(std::uint64_t)> charge, bool charged_before)
    : charge_(std::move(charge))
    , unknown_(charged_before) {}

void log_account::change(std::int64_t bytes) {
  std::unique_lock hold{guard_};
  bytes_ += static_cast<std::uint64_t>(bytes);
  if (waits_)
    return;
  if (is_late() || (full_ && std::chrono::steady_clock::now() - asked_at_ >= pause_when_full))
    ask(std::move(hold));
}

void log_account::answered(bool fits) {
  std::unique_lock hold{guard_};
  waits_ = false;
  full_ = !fits;
  if (fits)
    charged_ = asked_;
  if (is_late())
    ask(std::move(hold));
}

/// What the disk is charged for is not what the logs take.
bool log_account::is_late() const {
  return unknown_ || std::max(bytes_, asked_) - std::min(bytes_, asked_) >= step;
}

bool log_account::full() const {
  const std::lock_guard hold{guard_};
  return full_ || (waits_ && bytes_ > charged_ + step + most_unanswered);
}

void log_account::ask(std::unique_lock<std::mutex> hold) {
  waits_ = true;
  if (std::exchange(unknown_, false))
    charged_ = bytes_; // By an earlier account: what is there had room.
  asked_ = bytes_;
  asked_at_ = std::chrono::steady_clock::now();
  const auto wanted = asked_;
  hold.unlock(); // The answer may come before this returns.
  charge_(wanted);
}

} // namespace insula::runtime

#include "runtime/gateway/turns.hpp"

#include "base/limits.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <ctime>
#include <utility>

namespace insula::runtime::gateway {

std::chrono::nanoseconds turns::time_of_thread() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec};
}

/// A piece has its share, which has its queue. To drop a piece may add another one.
turns::~turns() {
  while (!(fresh_.empty() && busy_.empty())) {
    auto& from = fresh_.empty() ? busy_ : fresh_;
    const auto mine = std::move(from.front());
    from.pop_front();
    while (!mine->queue_.empty())
      const auto dropped = std::exchange(mine->queue_, {});
    mine->listed_ = false;
  }
}

bool turns::share::has_time() const {
  return in_.now_() - in_.piece_began_ < credit_;
}

void turns::add(const std::shared_ptr<share>& whose, std::function<void()> piece) {
  whose->queue_.push_back(std::move(piece));
  if (!std::exchange(whose->listed_, true)) {
    // What was used beyond the last turn is still owed.
    whose->credit_ = std::min(whose->credit_, std::chrono::nanoseconds{}) + limits::gateway_turn;
    fresh_.push_back(whose);
  }
  schedule();
}

void turns::schedule() {
  if (!std::exchange(scheduled_, true))
    boost::asio::post(io_, [this] {
      scheduled_ = false;
      run();
    });
}

/// For a moment: then it is looked whether there is something new.
void turns::run() {
  const auto began = now_();
  auto now = began;
  while (!(fresh_.empty() && busy_.empty()) && now - began < limits::gateway_turn) {
    const bool is_fresh = !fresh_.empty();
    auto& from = is_fresh ? fresh_ : busy_;
    const auto mine = std::move(from.front());
    from.pop_front();
    if (mine->queue_.empty()) {
      // Those that are fresh again and again would always be first.
      if (is_fresh)
        busy_.push_back(mine);
      else
        mine->listed_ = false;
      continue;
    }
    if (mine->credit_.count() <= 0) {
      mine->credit_ += limits::gateway_turn;
      busy_.push_back(mine);
      continue;
    }
    from.push_front(mine);
    auto piece = std::move(mine->queue_.front());
    mine->queue_.pop_front();
    piece_began_ = now;
    piece();
    piece = nullptr;
    const auto after = now_();
    mine->used_ += after - now;
    mine->credit_ -= after - now;
    used_ += after - now;
    now = after;
  }
  if (!(fresh_.empty() && busy_.empty()))
    schedule();
}

} // namespace insula::runtime::gateway

#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace insula::test {

/// What other threads have told, in order. Waiting for it has a deadline, and a deadline that
/// passes fails the test.
template <class T>
class events {
public:
  static constexpr std::chrono::seconds patience{60};

  void tell(T what) {
    const std::lock_guard hold{guard_};
    told_.push_back(std::move(what));
    changed_.notify_all(); // Held, since the listener may be gone as soon as it has heard.
  }

  T next(std::chrono::milliseconds limit = patience) {
    std::unique_lock hold{guard_};
    if (!changed_.wait_for(hold, limit, [this] { return !told_.empty(); }))
      throw std::runtime_error("nothing was told in time");
    T what = std::move(told_.front());
    told_.pop_front();
    return what;
  }

  /// Whether nothing that has been told is left. Says nothing about the future.
  bool empty() const {
    const std::lock_guard hold{guard_};
    return told_.empty();
  }

private:
  mutable std::mutex guard_;
  std::condition_variable changed_;
  std::deque<T> told_;
};

} // namespace insula::test

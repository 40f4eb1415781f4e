#pragma once

#include "base/error.hpp"

#include <memory>
#include <mutex>
#include <string>

namespace insula::actors {

/// How many sandboxes a node has alive, and the operator's hard limit on them. Threads: any.
class instance_count : public std::enable_shared_from_this<instance_count> {
public:
  /// One sandbox's place; gives itself back.
  class place {
  public:
    place() = default;
    explicit place(std::shared_ptr<instance_count> of)
        : of_(std::move(of)) {}
    place(place&&) = default;
    place& operator=(place&& other) noexcept {
      leave();
      of_ = std::move(other.of_);
      return *this;
    }
    ~place() { leave(); }

    explicit operator bool() const { return of_ != nullptr; }

  private:
    void leave() {
      if (const auto of = std::move(of_)) {
        const std::lock_guard hold{of->guard_};
        --of->taken_;
      }
    }

    std::shared_ptr<instance_count> of_;
  };

  explicit instance_count(unsigned limit)
      : limit_(limit) {}

  /// Errors: capacity_exceeded, with "<taken>/<limit>".
  result<place> take() {
    const std::lock_guard hold{guard_};
    if (taken_ >= limit_)
      return error{errc::capacity_exceeded, std::to_string(taken_) + "/" + std::to_string(limit_)};
    ++taken_;
    return place{shared_from_this()};
  }

  /// For one that is there already, also above the limit.
  place take_over() {
    const std::lock_guard hold{guard_};
    ++taken_;
    return place{shared_from_this()};
  }

private:
  const unsigned limit_;
  std::mutex guard_;
  unsigned taken_ = 0;
};

} // namespace insula::actors

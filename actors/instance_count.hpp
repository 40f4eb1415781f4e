#pragma once

#include "base/error.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace insula::actors {

/// What a place is taken by. `passing`: by a sandbox that starts or ends.
enum class instance : std::uint8_t { passing, warm, assigned };

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
      now_ = other.now_;
      return *this;
    }
    ~place() { leave(); }

    explicit operator bool() const { return of_ != nullptr; }

    void become(instance next) {
      if (of_ == nullptr)
        return;
      const std::lock_guard hold{of_->guard_};
      --of_->at(now_);
      ++of_->at(next);
      now_ = next;
    }

  private:
    void leave() {
      if (const auto of = std::move(of_)) {
        const std::lock_guard hold{of->guard_};
        --of->at(now_);
      }
    }

    std::shared_ptr<instance_count> of_;
    instance now_ = instance::passing;
  };

  explicit instance_count(unsigned limit)
      : limit_(limit) {}

  /// Errors: capacity_exceeded, with "<taken>/<limit>".
  result<place> take() {
    const std::lock_guard hold{guard_};
    if (taken() >= limit_)
      return error{errc::capacity_exceeded, text()};
    ++at(instance::passing);
    return place{shared_from_this()};
  }

  /// For one that is there already, also above the limit.
  place take_over() {
    const std::lock_guard hold{guard_};
    ++at(instance::passing);
    return place{shared_from_this()};
  }

  /// "<taken>/<limit>"
  std::string now() {
    const std::lock_guard hold{guard_};
    return text();
  }

  unsigned of(instance kind) {
    const std::lock_guard hold{guard_};
    return at(kind);
  }
  unsigned limit() const { return limit_; }

private:
  unsigned& at(instance kind) { return taken_[static_cast<std::size_t>(kind)]; }
  unsigned taken() const { return taken_[0] + taken_[1] + taken_[2]; }
  std::string text() const { return std::to_string(taken()) + "/" + std::to_string(limit_); }

  const unsigned limit_;
  std::mutex guard_;
  std::array<unsigned, 3> taken_{};
};

} // namespace insula::actors

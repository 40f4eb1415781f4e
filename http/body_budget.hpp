#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace insula::http {

/// Bytes of request bodies that are in memory, of all connections together. Any thread.
class body_budget {
public:
  explicit body_budget(std::uint64_t limit)
      : limit_(limit) {}

  /// False: it would be too much, and nothing has been taken.
  bool take(std::uint64_t bytes) {
    auto used = used_.load();
    do {
      if (bytes > limit_ - used)
        return false;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return true;
  }
  void give_back(std::uint64_t bytes) { used_ -= bytes; }

private:
  const std::uint64_t limit_;
  std::atomic<std::uint64_t> used_ = 0;
};

/// What one body has taken of the budget; given back with it.
class body_share {
public:
  explicit body_share(std::shared_ptr<body_budget> from)
      : from_(std::move(from)) {}
  ~body_share() { give_back(); }
  body_share(body_share&& other) noexcept
      : from_(other.from_)
      , taken_(std::exchange(other.taken_, 0)) {}
  body_share& operator=(body_share&&) = delete;

  bool take(std::uint64_t bytes) {
    const bool taken = from_->take(bytes);
    taken_ += taken ? bytes : 0;
    return taken;
  }
  void give_back() { from_->give_back(std::exchange(taken_, 0)); }

private:
  std::shared_ptr<body_budget> from_;
  std::uint64_t taken_ = 0;
};

} // namespace insula::http

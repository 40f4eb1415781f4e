#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace insula {

/// So many bytes, for all who share it. Any thread.
class byte_budget {
public:
  explicit byte_budget(std::uint64_t limit)
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

/// What somebody has taken of a budget; given back with it.
class byte_share {
public:
  explicit byte_share(std::shared_ptr<byte_budget> from)
      : from_(std::move(from)) {}
  ~byte_share() { give_back(); }
  byte_share(byte_share&& other) noexcept
      : from_(other.from_) // NOLINT(performance-move-constructor-init): both give back.
      , taken_(std::exchange(other.taken_, 0)) {}
  byte_share& operator=(byte_share&&) = delete;

  bool take(std::uint64_t bytes) {
    const bool taken = from_->take(bytes);
    taken_ += taken ? bytes : 0;
    return taken;
  }
  void give_back() { from_->give_back(std::exchange(taken_, 0)); }

private:
  std::shared_ptr<byte_budget> from_;
  std::uint64_t taken_ = 0;
};

} // namespace insula

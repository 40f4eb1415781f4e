#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace insula::runtime {

/// What the logs of one sandbox take together. The sandbox's disk is charged for it, in steps and a
/// little later: at most `step` is not charged, and what has come while an answer is awaited.
///
/// Threads: any.
class log_account {
public:
  static constexpr std::uint64_t step = 1u << 20;
  /// So much may come beyond the step while answers are awaited, for as many questions as it takes:
  /// then the account counts as full.
  static constexpr std::uint64_t most_unanswered = 16 * step;

  /// `charge` has the disk charged for so many bytes, in place of what it was charged for before,
  /// and has answered() called at most once for each call. There is never more than one call that
  /// waits for its answer. It is called on the thread that changes the account. `charged_before`:
  /// the disk may be charged for what an earlier account has asked for.
  explicit log_account(std::function<void(std::uint64_t bytes)> charge,
                       bool charged_before = false);

  /// A log has grown by so many bytes, or shrunk.
  void change(std::int64_t bytes);

  /// Does the disk have room for what it was to be charged for?
  void answered(bool fits);

  /// The disk has no room: logs do not grow. It is asked again from time to time, as long as
  /// change() is called.
  bool full() const;

private:
  bool is_late() const;
  void ask(std::unique_lock<std::mutex> hold);

  const std::function<void(std::uint64_t)> charge_;
  mutable std::mutex guard_;
  std::uint64_t bytes_ = 0;
  std::uint64_t charged_ = 0; ///< What the disk had room for when it answered last.
  std::uint64_t asked_ = 0;   ///< What `charge_` was called with last,
  std::chrono::steady_clock::time_point asked_at_;
  bool waits_ = false;   ///< and that is not answered yet.
  bool unknown_ = false; ///< Nobody has asked yet, and the disk may be charged all the same.
  bool full_ = false;
};

/// One log's part of an account, which ends with it.
class log_charge {
public:
  explicit log_charge(std::shared_ptr<log_account> account = nullptr)
      : account_(std::move(account)) {}
  log_charge(log_charge&&) noexcept = default;
  log_charge& operator=(log_charge&&) = delete;
  ~log_charge() { set(0); }

  void set(std::uint64_t bytes) {
    if (account_)
      account_->change(static_cast<std::int64_t>(bytes - bytes_));
    bytes_ = bytes;
  }
  bool full() const { return account_ && account_->full(); }

private:
  std::shared_ptr<log_account> account_; ///< None: nobody is charged.
  std::uint64_t bytes_ = 0;
};

} // namespace insula::runtime

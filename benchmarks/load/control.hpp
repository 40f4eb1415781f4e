#pragma once

#include "benchmarks/load/recorder.hpp"

#include <atomic>
#include <mutex>
#include <string>

namespace insula::load {

/// What the threads of one process share while a scenario runs: whether it goes on, and when they
/// all begin. Every function may be called by any thread.
class control {
public:
  explicit control(unsigned threads)
      : threads_(threads)
      , wanted_(threads) {}

  // ---- Ending early

  /// The first reason stands.
  void end_scenario(const std::string& why) { end(why, false); }
  void end_run(const std::string& why) { end(why, true); }
  bool ending() const { return ending_; }
  bool run_is_over() const { return run_is_over_; }
  std::string why() const {
    const std::lock_guard lock{mutex_};
    return why_;
  }

  // ---- Beginning together

  /// One thread is ready; together_at() is set by the last one. Answers what to ask with.
  std::uint64_t arrive(clock::time_point now, bool with_other_processes);
  /// None while somebody is missing.
  std::optional<clock::time_point> together_at(std::uint64_t arrival) const;
  /// A thread will not arrive any more.
  void leave(clock::time_point now, bool with_other_processes);

  /// Before the next scenario.
  void reset();

  counters so_far;
  std::atomic<clock::time_point> measuring_until{clock::time_point{}}; ///< For the progress line.

private:
  void end(const std::string& why, bool all);
  void begin_if_complete(clock::time_point now, bool with_other_processes);

  const unsigned threads_;
  mutable std::mutex mutex_;
  std::string why_;
  std::atomic<bool> ending_{false}, run_is_over_{false};
  unsigned wanted_;
  unsigned arrived_ = 0;
  std::uint64_t round_ = 0;
  clock::time_point begin_;
};

} // namespace insula::load

#pragma once

#include "benchmarks/load/bridge.hpp"
#include "benchmarks/load/result.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace insula::load {

/// What all threads together have done so far, for the progress line.
struct counters {
  std::atomic<std::uint64_t> started{0}, ok{0}, failed{0}, dropped{0};
};

/// Begun later than this after its time counts as late.
inline constexpr std::chrono::milliseconds late_after{1};

/// Fills one operation's result. What was to begin before the measuring does counts as warming up
/// and is kept apart. Belongs to one thread.
class recorder {
public:
  /// `from`: when the measuring begins; it may be set later, and until it is, all is warm-up.
  recorder(std::string name, const clock::time_point& from, counters& all, bool keeps_samples);

  void started(clock::time_point intended, clock::time_point began);
  void ended(clock::time_point intended, clock::time_point began, const ending& how);
  /// `now`: when it was found out that it would not be begun.
  void dropped(clock::time_point intended, clock::time_point now);

  const operation_result& result() const { return result_; }
  /// Failures while warming up, by kind.
  const std::map<std::string, std::uint64_t>& warm_up_failures() const { return early_; }
  /// Under way when the run was ended early.
  std::uint64_t let_go() const { return let_go_; }

private:
  bool counts(clock::time_point intended) const { return intended >= from_; }
  second_point& second_of(clock::time_point when);
  void extend(clock::time_point intended);

  const clock::time_point& from_;
  counters& all_;
  const bool keeps_samples_;
  clock::time_point first_{}, last_{}; ///< Intended starts that count.
  operation_result result_;
  std::map<std::string, std::uint64_t> early_;
  std::uint64_t let_go_ = 0;
};

} // namespace insula::load

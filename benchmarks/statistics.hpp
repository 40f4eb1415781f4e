#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace insula::bench {

/// Which end of a distribution is the bad one.
enum class better { lower, higher };

struct summary {
  std::size_t n = 0;
  double p50 = 0;
  double p99 = 0;   ///< From the bad end: where higher is better, 99 % are above it.
  double worst = 0; ///< The largest, or where higher is better the smallest.
  double lowest_round =
    0; ///< The p50 of each round by itself: how far apart they are is the noise.
  double highest_round = 0;
};

/// The measured values of one thing, by rounds, and its failures, none of which is ever dropped.
class series {
public:
  void next_round() { rounds_.emplace_back(); }
  void add(double value);
  void add(const std::vector<double>& values);
  void fail(const std::string& why);

  /// The value that was added last; 0 if none was.
  double last() const;
  std::size_t failures() const { return failures_; }
  const std::string& first_failure() const { return first_failure_; }
  summary summarize(better which) const;

private:
  std::vector<std::vector<double>> rounds_;
  std::size_t failures_ = 0;
  std::string first_failure_;
};

/// The nearest rank: a value that was measured. `share` is 0 to 1; 0 for no values.
double quantile(std::vector<double> values, double share);

} // namespace insula::bench

#include "benchmarks/statistics.hpp"

#include <algorithm>
#include <cmath>

namespace insula::bench {

double quantile(std::vector<double> values, double share) {
  if (values.empty())
    return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto at = values.begin() +
                  static_cast<std::ptrdiff_t>(std::clamp<std::size_t>(rank, 1, values.size()) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

void series::add(double value) {
  if (rounds_.empty())
    next_round();
  rounds_.back().push_back(value);
}

void series::add(const std::vector<double>& values) {
  for (const double each : values)
    add(each);
}

void series::fail(const std::string& why) {
  if (failures_++ == 0)
    first_failure_ = why;
}

double series::last() const {
  return rounds_.empty() || rounds_.back().empty() ? 0 : rounds_.back().back();
}

summary series::summarize(better which) const {
  summary sum;
  std::vector<double> all, middles;
  for (const auto& round : rounds_) {
    all.insert(all.end(), round.begin(), round.end());
    if (!round.empty())
      middles.push_back(quantile(round, 0.5));
  }
  sum.n = all.size();
  if (all.empty())
    return sum;
  const bool low = which == better::lower;
  sum.p50 = quantile(all, 0.5);
  sum.p99 = quantile(all, low ? 0.99 : 0.01);
  sum.worst = quantile(all, low ? 1 : 0);
  sum.lowest_round = quantile(middles, 0);
  sum.highest_round = quantile(middles, 1);
  return sum;
}

} // namespace insula::bench

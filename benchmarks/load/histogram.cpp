#include "benchmarks/load/histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace insula::load {

namespace {

/// Steps of each doubling; below twice as many microseconds, each is a step of its own.
constexpr std::size_t per_doubling = 1024;
constexpr unsigned exact_bits = std::bit_width(2 * per_doubling - 1);

/// How often the steps have doubled where `us` lies.
constexpr unsigned doublings(std::uint64_t us) {
  const auto bits = static_cast<unsigned>(std::bit_width(us));
  return bits > exact_bits ? bits - exact_bits : 0;
}

constexpr std::size_t step_of(std::uint64_t us) {
  const auto doubled = doublings(us);
  return doubled * per_doubling + static_cast<std::size_t>(us >> doubled);
}

/// How many steps there are up to the end of the doubling of `us`.
constexpr std::size_t steps_up_to(std::uint64_t us) {
  return (doublings(us) + 2) * per_doubling;
}

/// The longest time that belongs to a step.
constexpr std::uint64_t longest_of(std::size_t step) {
  const std::size_t doubled = step < 2 * per_doubling ? 0 : step / per_doubling - 1;
  const std::uint64_t within = step - doubled * per_doubling;
  return std::min(((within + 1) << doubled) - 1, histogram::longest_us);
}

static_assert(step_of(2047) == 2047 && step_of(2048) == 2048 && step_of(2049) == 2048);
static_assert(longest_of(step_of(2048)) == 2049 && longest_of(step_of(4095)) == 4095);
static_assert(step_of(4096) == step_of(4095) + 1);
static_assert(step_of(histogram::longest_us) < steps_up_to(histogram::longest_us));

} // namespace

void histogram::record(std::uint64_t microseconds, std::uint64_t times) {
  if (times == 0)
    return;
  const auto us = std::clamp(microseconds, shortest_us, longest_us);
  const auto step = step_of(us);
  if (step >= counts_.size())
    counts_.resize(steps_up_to(us));
  counts_[step] += times;
  min_ = total_ == 0 ? us : std::min(min_, us);
  max_ = std::max(max_, us);
  total_ += times;
  sum_ += static_cast<double>(us) * static_cast<double>(times);
}

void histogram::add(const histogram& other) {
  if (other.total_ == 0)
    return;
  counts_.resize(std::max(counts_.size(), other.counts_.size()));
  std::transform(other.counts_.begin(), other.counts_.end(), counts_.begin(), counts_.begin(),
                 std::plus{});
  min_ = total_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  total_ += other.total_;
  sum_ += other.sum_;
}

std::uint64_t histogram::min_us() const {
  return min_;
}

std::uint64_t histogram::max_us() const {
  return max_;
}

double histogram::mean_us() const {
  return total_ == 0 ? 0 : sum_ / static_cast<double>(total_);
}

std::uint64_t histogram::percentile_us(double percent) const {
  return percentile_us(percent, 0).value_or(0);
}

std::optional<std::uint64_t> histogram::percentile_us(double percent, std::uint64_t missing) const {
  const auto all = total_ + missing;
  if (all == 0)
    return 0;
  // 99.9 % of 1,000 are 999, though as doubles they are a little more.
  constexpr double rounding = 1 - 1e-12;
  const double share = std::clamp(percent, 0.0, 100.0) / 100;
  const auto rank =
    static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(all) * rounding));
  if (std::max<std::uint64_t>(rank, 1) > total_)
    return std::nullopt;
  auto step = step_of(min_);
  for (auto seen = counts_[step]; seen < rank; seen += counts_[step])
    ++step;
  return std::min(longest_of(step), max_);
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> histogram::steps() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> filled;
  for (std::size_t step = 0; step < counts_.size(); ++step)
    if (counts_[step] != 0)
      filled.emplace_back(longest_of(step), counts_[step]);
  return filled;
}

histogram histogram::from_steps(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& steps) {
  histogram made;
  for (const auto& [us, times] : steps)
    made.record(us, times);
  return made;
}

std::optional<histogram>
histogram::from_steps(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& steps,
                      std::uint64_t min_us, std::uint64_t max_us, double sum_us) {
  std::uint64_t before = 0, total = 0;
  for (const auto& [us, times] : steps) {
    if (us <= before || us > longest_us || longest_of(step_of(us)) != us || times == 0 ||
        times > std::numeric_limits<std::uint64_t>::max() - total)
      return std::nullopt;
    before = us;
    total += times;
  }
  auto made = from_steps(steps);
  if (steps.empty())
    return min_us == 0 && max_us == 0 && sum_us == 0 ? std::optional{made} : std::nullopt;
  const auto within = [](std::uint64_t exact, std::uint64_t step) {
    return exact >= shortest_us && exact <= longest_us && step_of(exact) == step_of(step);
  };
  const auto count = static_cast<double>(total);
  constexpr double rounding = 1e-9;
  if (!within(min_us, made.min_) || !within(max_us, made.max_) || min_us > max_us ||
      !(sum_us >= static_cast<double>(min_us) * count * (1 - rounding)) ||
      !(sum_us <= static_cast<double>(max_us) * count * (1 + rounding)))
    return std::nullopt;
  made.min_ = min_us;
  made.max_ = max_us;
  made.sum_ = sum_us;
  return made;
}

bool histogram::operator==(const histogram& other) const {
  // How far the counts reach follows from the longest time.
  return total_ == other.total_ && min_ == other.min_ && max_ == other.max_ && sum_ == other.sum_ &&
         counts_ == other.counts_;
}

} // namespace insula::load

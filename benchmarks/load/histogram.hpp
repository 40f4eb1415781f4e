#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace insula::load {

/// How often each length of time occurred, from 1 µs to 10 minutes, each told apart from the next
/// to three digits. What is shorter or longer counts as the nearest of these. Histograms can be
/// added to each other, and nothing is lost by that: this is how several clients become one run.
///
/// The layout is that of HDR histograms: ranges that double, each of 1,024 equal steps.
class histogram {
public:
  static constexpr std::uint64_t shortest_us = 1;
  static constexpr std::uint64_t longest_us = 600'000'000;

  void record(std::uint64_t microseconds, std::uint64_t times = 1);
  void add(const histogram& other);

  [[nodiscard]] std::uint64_t count() const { return total_; }
  [[nodiscard]] std::uint64_t min_us() const; ///< 0 when it is empty, as are the next three.
  [[nodiscard]] std::uint64_t max_us() const;
  [[nodiscard]] double mean_us() const;
  [[nodiscard]] double sum_us() const { return sum_; } ///< Of all that were recorded.
  /// The length that `percent` (0 to 100) of all recorded ones do not exceed: nearest rank, and the
  /// longest that the step of that rank stands for, as far as anything was that long.
  [[nodiscard]] std::uint64_t percentile_us(double percent) const;
  /// The same where `missing` more never came to an end, or a bad one: they count as longer than
  /// all. None when the rank falls on one of these; 0 when there was nothing at all.
  [[nodiscard]] std::optional<std::uint64_t> percentile_us(double percent,
                                                           std::uint64_t missing) const;

  /// The steps that have anything, ascending: the longest time that belongs to the step, and how
  /// often. `from_steps` makes the same histogram of them again, but for the shortest, the longest
  /// and the sum, which then are those of the steps.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> steps() const;
  static histogram from_steps(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& steps);
  /// Exactly the same again. None if the figures do not belong to these steps, if these are not
  /// ascending or none of this layout, or if one of them has nothing.
  static std::optional<histogram>
  from_steps(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& steps,
             std::uint64_t min_us, std::uint64_t max_us, double sum_us);

  bool operator==(const histogram& other) const;

private:
  /// By step, up to the end of the doubling of the longest; empty until something is recorded.
  std::vector<std::uint64_t> counts_;
  std::uint64_t total_ = 0;
  std::uint64_t min_ = 0;
  std::uint64_t max_ = 0;
  double sum_ = 0;
};

} // namespace insula::load

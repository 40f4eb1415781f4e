#include "benchmarks/load/histogram.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <random>

using insula::load::histogram;

namespace {

/// From 1 µs to 10 minutes, every order of magnitude as often.
std::vector<std::uint64_t> random_lengths(std::size_t count, unsigned seed) {
  std::mt19937_64 random{seed};
  std::uniform_real_distribution<double> order{0, std::log(6e8)};
  std::vector<std::uint64_t> made;
  for (std::size_t i = 0; i < count; ++i)
    made.push_back(static_cast<std::uint64_t>(std::exp(order(random))));
  return made;
}

histogram of(const std::vector<std::uint64_t>& lengths) {
  histogram made;
  for (const auto each : lengths)
    made.record(each);
  return made;
}

std::uint64_t ranked(std::vector<std::uint64_t> lengths, double percent) {
  std::sort(lengths.begin(), lengths.end());
  const auto rank = std::ceil(percent * static_cast<double>(lengths.size()) / 100 - 1e-9);
  return lengths[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

} // namespace

TEST_CASE("percentiles are those of the sorted lengths, to three digits", "[load]") {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    const auto lengths = random_lengths(1 + 3000 * (seed - 1), seed);
    const auto counted = of(lengths);
    CHECK(counted.count() == lengths.size());
    CHECK(counted.min_us() == *std::min_element(lengths.begin(), lengths.end()));
    CHECK(counted.max_us() == *std::max_element(lengths.begin(), lengths.end()));
    for (const double percent : {0.0, 0.1, 10.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0}) {
      const auto exact = ranked(lengths, percent);
      const auto told = counted.percentile_us(percent);
      CAPTURE(seed, percent, exact, told);
      CHECK(told >= exact);
      CHECK(static_cast<double>(told - exact) <= static_cast<double>(exact) / 1000);
    }
  }
}

TEST_CASE("no step is wider than a thousandth, and none above the longest", "[load]") {
  for (std::uint64_t us = 1; us <= histogram::longest_us; us += 1 + us / 700) {
    histogram one;
    one.record(us);
    one.record(histogram::longest_us);
    const auto told = one.steps().front().first;
    CAPTURE(us, told);
    REQUIRE(told >= us);
    REQUIRE((told - us) * 1000 <= us);
    REQUIRE(told <= histogram::longest_us);
  }
}

TEST_CASE("what is too short or too long counts as the nearest", "[load]") {
  histogram counted;
  counted.record(0);
  counted.record(~std::uint64_t{0});
  CHECK(counted.min_us() == histogram::shortest_us);
  CHECK(counted.max_us() == histogram::longest_us);
  CHECK(counted.percentile_us(100) == histogram::longest_us);
}

TEST_CASE("an empty histogram says 0", "[load]") {
  const histogram none;
  CHECK(none.count() == 0);
  CHECK(none.min_us() == 0);
  CHECK(none.max_us() == 0);
  CHECK(none.mean_us() == 0);
  CHECK(none.percentile_us(50) == 0);
  CHECK(none.steps().empty());
  CHECK(none.percentile_us(50, 0) == 0);
  CHECK_FALSE(none.percentile_us(50, 1));
}

TEST_CASE("a histogram of all is the sum of those of the parts", "[load]") {
  const auto lengths = random_lengths(4000, 9);
  histogram sum, nothing;
  std::vector<histogram> parts(3);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    parts[i % 3].record(lengths[i]);
  for (const auto& part : parts)
    sum.add(part);
  sum.add(nothing);
  CHECK(sum == of(lengths));
  nothing.add(sum);
  CHECK(nothing == sum);
}

TEST_CASE("what is missing counts as longer than everything", "[load]") {
  histogram counted;
  counted.record(100, 98);
  counted.record(200);
  CHECK(counted.percentile_us(99, 1) == 200);
  CHECK_FALSE(counted.percentile_us(99.5, 1));
  CHECK_FALSE(counted.percentile_us(100, 1));
  CHECK(counted.percentile_us(49, 98) == 100);
  CHECK_FALSE(counted.percentile_us(51, 98));
}

TEST_CASE("99.9 % of a thousand are 999", "[load]") {
  histogram counted;
  counted.record(100, 999);
  counted.record(200);
  CHECK(counted.percentile_us(99.9) == 100);
  CHECK(counted.percentile_us(99.91) == 200);
}

TEST_CASE("steps make the same histogram again", "[load]") {
  const auto counted = of(random_lengths(2000, 4));
  const auto again =
    histogram::from_steps(counted.steps(), counted.min_us(), counted.max_us(), counted.sum_us());
  REQUIRE(again);
  CHECK(*again == counted);
  const auto nearly = histogram::from_steps(counted.steps());
  CHECK(nearly.steps() == counted.steps());
  CHECK(nearly.count() == counted.count());
}

TEST_CASE("steps that are none are refused", "[load]") {
  const auto refused = [](std::vector<std::pair<std::uint64_t, std::uint64_t>> steps,
                          std::uint64_t min, std::uint64_t max,
                          double sum) { return !histogram::from_steps(steps, min, max, sum); };
  CHECK_FALSE(refused({{100, 2}, {4099, 1}}, 100, 4096, 4296));
  CHECK_FALSE(refused({}, 0, 0, 0));
  CHECK(refused({}, 1, 1, 1));
  CHECK(refused({{100, 0}}, 100, 100, 0));
  CHECK(refused({{0, 1}}, 0, 0, 0));
  CHECK(refused({{4096, 1}}, 4096, 4096, 4096)); // Its step ends with 4,099.
  CHECK(refused({{100, 1}, {100, 1}}, 100, 100, 200));
  CHECK(refused({{200, 1}, {100, 1}}, 100, 200, 300));
  CHECK(refused({{100, 1}}, 99, 100, 100));
  CHECK(refused({{100, 1}}, 100, 101, 100));
  CHECK(refused({{100, 2}}, 100, 100, 100));
  CHECK(refused({{100, 2}}, 100, 100, std::nan("")));
  CHECK(refused({{700'000'000, 1}}, 700'000'000, 700'000'000, 7e8));
  CHECK(refused({{100, ~std::uint64_t{0}}, {200, 1}}, 100, 200, 1e21));
}

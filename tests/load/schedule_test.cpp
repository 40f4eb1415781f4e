#include "benchmarks/load/schedule.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace insula::load;

namespace {

std::vector<double> seconds_of(schedule times, std::size_t count) {
  std::vector<double> all;
  for (std::size_t i = 0; i < count; ++i)
    all.push_back(std::chrono::duration<double>(times.next()).count());
  return all;
}

} // namespace

TEST_CASE("a seed gives the same schedule again, and each part of a run another one", "[load]") {
  const schedule times{arrivals::poisson, 100, 7, {1, 4}};
  CHECK(seconds_of(times, 1000) == seconds_of({arrivals::poisson, 100, 7, {1, 4}}, 1000));
  CHECK(seconds_of(times, 1000) != seconds_of({arrivals::poisson, 100, 8, {1, 4}}, 1000));
  CHECK(seconds_of(times, 1000) != seconds_of({arrivals::poisson, 100, 7, {2, 4}}, 1000));
}

TEST_CASE("Poisson arrivals come at their rate, with gaps as random as they have to be", "[load]") {
  constexpr std::size_t count = 200'000;
  const auto all = seconds_of({arrivals::poisson, 250, 1, {}}, count);
  CHECK(std::is_sorted(all.begin(), all.end()));
  double sum = 0, squares = 0;
  for (std::size_t i = 1; i < count; ++i) {
    const auto gap = all[i] - all[i - 1];
    sum += gap;
    squares += gap * gap;
  }
  const auto mean = sum / (count - 1), deviation = std::sqrt(squares / (count - 1) - mean * mean);
  CHECK(mean == Approx(1.0 / 250).epsilon(0.01));
  CHECK(deviation == Approx(mean).epsilon(0.02)); // What tells it from even distances.
}

TEST_CASE("fixed arrivals of all parts together are at even distances", "[load]") {
  std::vector<double> all;
  for (std::uint32_t i = 0; i < 3; ++i)
    for (const auto each : seconds_of({arrivals::fixed, 30, 1, {i, 3}}, 100))
      all.push_back(each);
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i)
    REQUIRE(all[i] == Approx(static_cast<double>(i) / 30).margin(1e-6));
}

TEST_CASE("the parts of a whole number add up to it", "[load]") {
  for (const std::uint64_t count : {0ull, 1ull, 5ull, 100ull, 101ull})
    for (const std::uint32_t of : {1u, 2u, 3u, 7u}) {
      std::uint64_t sum = 0;
      for (std::uint32_t i = 0; i < of; ++i)
        sum += share{i, of}.part_of(count);
      CHECK(sum == count);
    }
}

TEST_CASE("threads of a part are parts of the run", "[load]") {
  const auto inner = share{1, 3}.inside({2, 4});
  CHECK(inner.index == 6);
  CHECK(inner.of == 12);
}

TEST_CASE("a share is written I/N", "[load]") {
  const auto second = parse_share("2/4");
  REQUIRE(second);
  CHECK(second->index == 1);
  CHECK(second->of == 4);
  for (const auto* wrong : {"", "1", "0/2", "3/2", "1/0", "/", "1/2/3", "a/b", "-1/2", "1/2 "}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_share(wrong));
  }
}

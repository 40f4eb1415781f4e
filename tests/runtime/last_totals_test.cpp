#include "runtime/last_totals.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

using namespace insula;
using namespace insula::runtime;
using namespace std::chrono_literals;

namespace {

/// A gateway that answers when the test has it answer.
struct gateway {
  std::mutex guard;
  std::vector<last_totals::tell_fn> asked; ///< Guarded by it.

  std::size_t questions() {
    const std::lock_guard hold{guard};
    return asked.size();
  }
  last_totals::tell_fn take() {
    const std::lock_guard hold{guard};
    auto tell = std::move(asked.back());
    asked.pop_back();
    return tell;
  }
  std::optional<network_totals> get(last_totals& from, std::chrono::milliseconds patience) {
    return from.get(
      [this](last_totals::tell_fn tell) {
        const std::lock_guard hold{guard};
        asked.push_back(std::move(tell));
      },
      patience);
  }
};

} // namespace

TEST_CASE("totals are asked for once, however many want them", "[totals]") {
  gateway far;
  last_totals totals;
  std::vector<std::thread> many;
  std::atomic<int> right = 0;
  for (int i = 0; i < 20; ++i)
    many.emplace_back([&] {
      const auto got = far.get(totals, 1min);
      right += got && got->refusals == 7;
    });
  REQUIRE(test::eventually([&] { return far.questions() == 1; }));
  far.take()(network_totals{7, {}});
  // Those that came later than the answer ask again.
  std::atomic<bool> over = false;
  std::thread answers{[&] {
    while (!over)
      if (far.questions() > 0)
        far.take()(network_totals{7, {}});
      else
        std::this_thread::yield();
  }};
  for (auto& each : many)
    each.join();
  over = true;
  answers.join();
  CHECK(right == 20);
}

TEST_CASE("without an answer the last one holds, and only one waits", "[totals]") {
  gateway far;
  last_totals totals;
  CHECK_FALSE(far.get(totals, 1ms));
  CHECK(far.questions() == 1);
  CHECK_FALSE(far.get(totals, 1ms)); // It is still being asked.
  CHECK(far.questions() == 1);
  far.take()(network_totals{3, {}});
  CHECK(far.get(totals, 1ms)->refusals == 3);
  REQUIRE(far.questions() == 1);
  CHECK(far.get(totals, 1h)->refusals == 3); // At once: another one asks.
  far.take()(error{errc::io_failed, "away"});
  CHECK(far.get(totals, 1ms)->refusals == 3);
  far.take(); // Dropped without a word.
  CHECK(far.get(totals, 1ms)->refusals == 3);
  CHECK(far.questions() == 1);
}

#include "actors/instance_count.hpp"
#include "actors/sandbox/lifecycle.hpp"
#include "tests/support/catch.hpp"

#include <optional>
#include <vector>

using namespace insula;
using namespace insula::actors;

TEST_CASE("no more places are taken than there are, and each comes back once", "[actors]") {
  const auto count = std::make_shared<instance_count>(2u);
  auto first = count->take();
  std::optional second{count->take()};
  REQUIRE(first);
  REQUIRE(*second);
  const auto third = count->take();
  REQUIRE_FALSE(third);
  CHECK(third.reason().code == errc::capacity_exceeded);
  CHECK(third.reason().message == "2/2");
  second.reset();
  auto again = count->take();
  REQUIRE(again);
  *again = instance_count::place{};
  CHECK(count->take());
}

TEST_CASE("every phase that can be entered can be left, but for the last", "[actors][lifecycle]") {
  const std::vector all{phase::asleep, phase::starting, phase::running,
                        phase::frozen, phase::stopping, phase::deleting};
  for (const auto from : all) {
    bool any = false;
    for (const auto to : all)
      any |= may_become(from, to);
    CHECK(any == (from != phase::deleting));
    if (from != phase::deleting)
      CHECK(may_become(from, phase::deleting));
    CHECK_FALSE(may_become(from, from));
  }
}

#include "base/error.hpp"
#include "tests/support/catch.hpp"

#include <memory>

using namespace insula;

TEST_CASE("a result holds a value or the reason why there is none", "[base][error]") {
  const result<int> good = 7;
  REQUIRE(good);
  CHECK(*good == 7);
  const result<int> bad = error{errc::not_found, "no such file"};
  REQUIRE_FALSE(bad);
  CHECK(bad.reason().code == errc::not_found);
  CHECK(bad.reason().message == "no such file");
}

TEST_CASE("a result carries what can only be moved", "[base][error]") {
  result<std::unique_ptr<int>> held = std::make_unique<int>(3);
  REQUIRE(held);
  const auto taken = std::move(*held);
  CHECK(*taken == 3);
}

TEST_CASE("success without a value is the default of result<void>", "[base][error]") {
  const auto worked = []() -> result<void> { return {}; };
  const auto failed = []() -> result<void> { return {{errc::io_failed, "disk full"}}; };
  CHECK(worked());
  REQUIRE_FALSE(failed());
  CHECK(failed().reason().message == "disk full");
}

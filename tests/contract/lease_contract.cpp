// What every lease service promises. A new one is done when it passes this file.
#include "storage/local_lease.hpp"
#include "tests/support/store_fixtures.hpp"

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;

namespace {

/// A node's leases, and the node's restart.
template <class Disk>
class local {
public:
  lease_service& start() {
    leases_.reset();
    auto opened = local_lease::open(disk_.reopen());
    if (!opened)
      FAIL(opened.reason().message);
    leases_ = std::move(*opened);
    return *leases_;
  }

private:
  Disk disk_;
  std::unique_ptr<lease_service> leases_;
};

using local_in_memory = local<in_memory>;
using local_sqlite = local<sqlite>;

result<epoch> acquire(lease_service& from, std::string owner) {
  auto told = std::make_shared<std::promise<result<epoch>>>();
  auto outcome = told->get_future();
  from.acquire(std::move(owner), [told](result<epoch> r) { told->set_value(std::move(r)); });
  return outcome.get();
}

epoch held(lease_service& from, const std::string& owner) {
  auto got = acquire(from, owner);
  REQUIRE(got);
  return *got;
}

} // namespace

TEMPLATE_TEST_CASE("a lease is held by one at a time", "[contract][lease]", local_in_memory,
                   local_sqlite) {
  TestType node;
  auto& leases = node.start();
  const auto first = held(leases, "a");
  CHECK(first > 0);
  const auto second = acquire(leases, "a");
  REQUIRE_FALSE(second);
  CHECK(second.reason().code == errc::limit_reached);
  CHECK(held(leases, "b") > 0);

  SECTION("until it is given back") {
    leases.release("a", first);
    CHECK(held(leases, "a") > first);
  }
  SECTION("and only the holder can give it back") {
    leases.release("a", first + 1);
    leases.release("a", 0);
    leases.release("never held", 1);
    CHECK_FALSE(acquire(leases, "a"));
  }
}

TEMPLATE_TEST_CASE("epochs of an owner grow, also across restarts", "[contract][lease]",
                   local_in_memory, local_sqlite) {
  TestType node;
  epoch before = 0;
  for (int restart = 0; restart < 4; ++restart) {
    auto& leases = node.start();
    for (int turn = 0; turn < 700; ++turn) {
      const auto now = held(leases, "a");
      REQUIRE(now > before);
      before = now;
      leases.release("a", now);
    }
  }
}

TEMPLATE_TEST_CASE("a lease service refuses what no store would take", "[contract][lease]",
                   local_in_memory, local_sqlite) {
  TestType node;
  auto& leases = node.start();
  for (const auto& owner : {std::string{}, std::string{"a/b"}, std::string(129, 'o')}) {
    const auto got = acquire(leases, owner);
    REQUIRE_FALSE(got);
    CHECK(got.reason().code == errc::invalid_request);
  }
}

TEMPLATE_TEST_CASE("of many who want a lease at once one gets it", "[contract][lease]",
                   local_in_memory, local_sqlite) {
  TestType node;
  auto& leases = node.start();
  std::vector<std::thread> wanting;
  std::mutex mutex;
  std::map<std::string, int> winners;
  std::set<epoch> epochs;
  for (int t = 0; t < 4; ++t)
    wanting.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const auto owner = std::to_string(i);
        if (const auto got = acquire(leases, owner)) {
          const std::lock_guard lock{mutex};
          ++winners[owner];
          epochs.insert(*got);
        }
      }
    });
  for (auto& one : wanting)
    one.join();
  CHECK(winners.size() == 500);
  CHECK(epochs.size() == 500);
}

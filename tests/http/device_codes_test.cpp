#include "http/vercel/device_codes.hpp"
#include "tests/support/catch.hpp"

#include <set>
#include <vector>

using namespace insula;
using namespace std::chrono_literals;
using codes = http::vercel::device_codes;
using state = codes::state;

namespace {

const http::vercel::device_grant some_grant{"a.token", 600};

} // namespace

TEST_CASE("Vercel: a sign-in that is confirmed gives its token once", "[http][vercel]") {
  codes all;
  const auto start = codes::clock::now();
  const auto made = all.open("10.0.0.1", start);
  REQUIRE(made);
  CHECK(made->device.size() == 64);
  CHECK(http::vercel::user_code_in(made->user) == made->user);
  CHECK(all.network_of(made->user, start) == "10.0.0.1");
  CHECK(all.ask(made->device, start).is == state::waiting);
  CHECK(all.decide(made->user, some_grant, start));
  CHECK_FALSE(all.network_of(made->user, start));
  CHECK_FALSE(all.decide(made->user, std::nullopt, start)); // What is said first holds.
  const auto told = all.ask(made->device, start);           // However soon.
  CHECK(told.is == state::granted);
  CHECK(told.grant.token == "a.token");
  CHECK(told.grant.lasts_s == 600);
  CHECK(all.ask(made->device, start + 1min).is == state::unknown);
}

TEST_CASE("Vercel: a sign-in that is refused, over or unknown gives nothing", "[http][vercel]") {
  codes all;
  const auto start = codes::clock::now();
  const auto refused = all.open("a", start), late = all.open("a", start);
  REQUIRE((refused && late));
  CHECK(all.decide(refused->user, std::nullopt, start));
  CHECK(all.ask(refused->device, start).is == state::refused);
  CHECK(all.ask(refused->device, start).is == state::unknown);
  const auto end = start + codes::lasts;
  CHECK(all.network_of(late->user, end - 1s));
  CHECK_FALSE(all.network_of(late->user, end));
  CHECK_FALSE(all.decide(late->user, some_grant, end));
  CHECK(all.ask(late->device, end).is == state::unknown);
  CHECK(all.ask("", start).is == state::unknown);
  CHECK(all.ask(late->user, start).is == state::unknown);
  CHECK_FALSE(all.decide("", some_grant, start));
  CHECK_FALSE(all.decide(late->device, some_grant, start));
}

TEST_CASE("Vercel: a command line that asks too soon is to ask more slowly", "[http][vercel]") {
  codes all;
  const auto start = codes::clock::now();
  const auto made = all.open("a", start);
  REQUIRE(made);
  CHECK(all.ask(made->device, start).is == state::waiting);
  CHECK(all.ask(made->device, start + 4900ms).is == state::waiting); // A timer is not exact.
  CHECK(all.ask(made->device, start + 6s).is == state::too_soon);    // From now on 10 s.
  CHECK(all.ask(made->device, start + 12s).is == state::too_soon);   // 15 s.
  CHECK(all.ask(made->device, start + 27s).is == state::waiting);
}

TEST_CASE("Vercel: so many sign-ins wait and no more, of each network and of all",
          "[http][vercel]") {
  codes all;
  const auto start = codes::clock::now();
  std::set<std::string> users;
  std::size_t open = 0;
  for (std::size_t network = 0; network <= codes::most / codes::most_of_network; ++network)
    for (std::size_t i = 0; i <= codes::most_of_network; ++i)
      if (const auto made = all.open(std::to_string(network), start)) {
        ++open;
        users.insert(made->user);
      } else {
        CHECK((i == codes::most_of_network || open == codes::most));
      }
  CHECK(open == codes::most);
  CHECK(users.size() == codes::most);
  CHECK_FALSE(all.open("another", start));
  CHECK(all.open("another", start + codes::lasts)); // Those are over.
}

TEST_CASE("Vercel: a sign-in about which no command line asks makes way for others of its network",
          "[http][vercel]") {
  codes all;
  const auto start = codes::clock::now();
  std::vector<codes::codes> made;
  for (std::size_t i = 0; i < codes::most_of_network; ++i)
    made.push_back(*all.open("a", start));
  const auto kept = *all.open("b", start);
  const auto later = start + codes::silence;
  CHECK(all.ask(made[0].device, later - 1s).is == state::waiting);
  CHECK(all.open("a", later));
  CHECK(all.network_of(made[0].user, later) == "a");
  CHECK_FALSE(all.network_of(made[1].user, later));
  CHECK(all.network_of(kept.user, later) == "b");
  all.clear();
  CHECK_FALSE(all.network_of(kept.user, later));
  CHECK(all.ask(kept.device, later).is == state::unknown);
}

TEST_CASE("Vercel: a user code is read as people type it", "[http][vercel]") {
  using http::vercel::user_code_in;
  CHECK(user_code_in("BCDF-GHJK") == "BCDF-GHJK");
  CHECK(user_code_in("bcdfghjk") == "BCDF-GHJK");
  CHECK(user_code_in(" bc df - ghjk ") == "BCDF-GHJK");
  for (const auto* other :
       {"", "BCDF-GHJ", "BCDF-GHJKL", "BCDF-GHJA", "BCDF_GHJK", "BCDFGHJ\xc3\x84"})
    CHECK(user_code_in(other).empty());
}

#include "storage/key_places.hpp"
#include "tests/support/catch.hpp"

#include <optional>
#include <vector>

using namespace insula;
using namespace insula::storage;

namespace {

constexpr std::int64_t start_us = 1'700'000'000'000'000, second_us = 1'000'000;

place_wish wish(const std::string& sandbox, std::uint32_t cpu_percent = 100, bool is_new = true) {
  return {"ci", sandbox, cpu_percent, is_new};
}

/// Of a lone node, which answers inside the call.
result<key_places::held> take(key_places& of, const place_wish& what) {
  std::optional<result<key_places::held>> answer;
  of.take(what, [&](const result<key_places::held>& told) { answer = told; });
  REQUIRE(answer);
  return *answer;
}

/// What a cluster has in common, as the test wants it.
struct played_ledger final : key_ledger {
  struct question {
    place_wish what;
    key_ceilings most;
    std::string token;
    std::function<void(result<void>)> then;
  };
  void reserve(place_wish what, key_ceilings most, std::string token,
               std::function<void(result<void>)> then) override {
    asked.push_back({std::move(what), most, std::move(token), std::move(then)});
  }
  void put(place_wish what, std::string) override { there.push_back("put " + what.sandbox); }
  void drop(place_wish what, std::string) override { there.push_back("drop " + what.sandbox); }

  std::vector<question> asked;
  std::vector<std::string> there;
};

} // namespace

TEST_CASE("a key has as many sandboxes at once as it may", "[storage][keys]") {
  key_places places{[] { return start_us; }};
  places.set_ceilings({{"ci", {2, 0, 0}}});
  CHECK(places.counts_here_alone("ci"));
  CHECK_FALSE(places.counts_here_alone("other"));
  auto one = take(places, wish("a")), two = take(places, wish("b"));
  REQUIRE(one);
  REQUIRE(two);
  const auto third = take(places, wish("c"));
  REQUIRE_FALSE(third);
  CHECK(third.reason().code == errc::key_ceiling);
  CHECK(third.reason().message ==
        "The API key ci may have 2 sandboxes at once, and has them (limits.sandboxes).");
  CHECK(third.reason().retry_s == 0);
  CHECK(take(places, wish("b"))); // A sandbox counts once.
  CHECK(take(places, {"other", "c", 100, true}));
  (*one).reset();
  one = error{errc::internal, ""};
  CHECK(take(places, wish("c")));
  // One that runs already counts in any case.
  const auto survivor = places.take_over(wish("d")), other = places.take_over(wish("e"));
  CHECK_FALSE(take(places, wish("c")));
  CHECK(places.counts() == std::map<std::string, unsigned>{{"ci", 3}});
}

TEST_CASE("the processors of a key's sandboxes are counted together", "[storage][keys]") {
  key_places places{[] { return start_us; }};
  places.set_ceilings({{"ci", {0, 450, 0}}});
  const auto one = take(places, wish("a", 250));
  REQUIRE(one);
  const auto refused = take(places, wish("b", 205));
  REQUIRE_FALSE(refused);
  CHECK(refused.reason().message ==
        "The API key ci may have 4.5 processors in its sandboxes together, and has 2.5; this one "
        "needs 2.05 (limits.vcpus).");
  CHECK(take(places, wish("b", 200)));
}

TEST_CASE("creates of a minute are a bucket that runs empty", "[storage][keys]") {
  auto now = start_us;
  key_places places{[&] { return now; }};
  places.set_ceilings({{"ci", {0, 0, 4}}});
  for (const auto* each : {"a", "b", "c", "d"})
    REQUIRE(take(places, wish(each)));
  const auto fifth = take(places, wish("e"));
  REQUIRE_FALSE(fifth);
  CHECK(fifth.reason().message == "The API key ci may make 4 sandboxes a minute, and has made them "
                                  "(limits.creates_per_minute).");
  CHECK(fifth.reason().retry_s == 15);
  CHECK(take(places, wish("a", 100, false))); // That is no create.
  now += 14 * second_us + 1;
  CHECK(take(places, wish("e")).reason().retry_s == 1);
  now += second_us;
  CHECK(take(places, wish("e")));
  CHECK_FALSE(take(places, wish("f")));
  now += 60 * second_us;
  for (const auto* each : {"f", "g", "h", "i"})
    CHECK(take(places, wish(each)));
  CHECK_FALSE(take(places, wish("j")));
  now -= 3600 * second_us; // The clock is put back: nobody waits for longer than a minute.
  CHECK(take(places, wish("j")).reason().retry_s <= 60);
  // What is refused for another ceiling is no create.
  places.set_ceilings({{"ci", {1, 0, 4}}});
  now = start_us + 7200 * second_us;
  const auto one = take(places, wish("a"));
  for (int i = 0; i < 8; ++i)
    CHECK(take(places, wish("b")).reason().retry_s == 0);
  places.set_ceilings({{"ci", {2, 0, 4}}});
  CHECK(take(places, wish("b")));
}

TEST_CASE("in a cluster keys with ceilings are asked for in common, and others not",
          "[storage][keys]") {
  played_ledger ledger;
  key_places places{[] { return start_us; }};
  places.share(&ledger);
  CHECK_FALSE(places.counts_here_alone("ci"));
  places.set_ceilings({{"ci", {1, 0, 0}}, {"free", {}}});
  auto free = take(places, {"free", "x", 100, true});
  CHECK(free);
  CHECK(ledger.asked.empty());
  std::optional<result<key_places::held>> answer;
  const auto ask = [&](const std::string& sandbox) {
    places.take(wish(sandbox), [&](const result<key_places::held>& told) { answer = told; });
  };
  ask("a");
  REQUIRE(ledger.asked.size() == 1);
  CHECK_FALSE(answer);
  CHECK(ledger.asked[0].most == key_ceilings{1, 0, 0});
  ledger.asked[0].then({});
  ledger.asked[0].then = nullptr;
  REQUIRE((answer && *answer));
  CHECK(places.counts() == std::map<std::string, unsigned>{{"ci", 1}, {"free", 1}});
  answer.reset(); // It leaves.
  CHECK(ledger.there == std::vector<std::string>{"drop a"});
  ask("b");
  CHECK(ledger.asked[1].token != ledger.asked[0].token);
  ledger.asked[1].then(error{errc::key_ceiling, "full"});
  ledger.asked[1].then = nullptr;
  REQUIRE((answer && !*answer));
  CHECK(ledger.there.size() == 1); // There was nothing to be given back.
  CHECK(places.counts().at("ci") == 0);
  {
    const auto taken_over = places.take_over(wish("c"));
    CHECK(ledger.there.back() == "put c");
  }
  CHECK(ledger.there.back() == "drop c");
  // A key that gets ceilings: what it has is told.
  places.set_ceilings({{"ci", {1, 0, 0}}, {"free", {5, 0, 0}}});
  CHECK(ledger.there.back() == "put x");
  free = error{errc::internal, ""};
  CHECK(ledger.there.back() == "drop x");
  // Without the ledger nothing is had, and nothing hangs.
  places.share(nullptr);
}

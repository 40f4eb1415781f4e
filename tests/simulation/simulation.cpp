// Who owns what in a cluster, with a clock, a network and an etcd that are played: thousands of
// histories, each from a seed that plays it again.
#include "base/log.hpp"
#include "tests/simulation/actor_history.hpp"
#include "tests/simulation/plain_history.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

namespace {

/// A run of many histories that has not seen one of these has not looked at what it is for.
constexpr const char* to_be_seen[] = {
  "leases lost",
  "leases gone on with",
  "leases not found",
  "leases taken",
  "ids moved",
  "writes acknowledged",
  "deletes acknowledged",
  "writes that nobody knew of found out about",
  "alarms rung",
  "orphans taken",
  "objects made",
  "ids of the server before taken up",
  "times that etcd was full",
  "objects answered with again",
  "keepalives answered by a leader that was none",
  "leases that ended early",
};
/// With actors:
constexpr const char* seen_with_actors[] = {
  "leases lost",
  "leases gone on with",
  "leases taken",
  "ids moved",
  "ids handed over",
  "writes acknowledged",
  "deletes acknowledged",
  "deeds that failed",
  "objects ended by their alarms",
  "orphans taken",
  "objects made",
  "objects answered with again",
  "sandboxes started or found",
  "requests forwarded",
  "links up",
  "links down",
  "questions to peers answered",
  "questions to peers that failed",
  "times that etcd was full",
  "keepalives answered by a leader that was none",
  "leases that ended early",
};
constexpr std::uint64_t many = 100;

std::unique_ptr<insula::simulation::history> make_history(bool actors, std::uint64_t seed) {
  if (actors)
    return std::make_unique<insula::simulation::actor_history>(seed);
  return std::make_unique<insula::simulation::plain_history>(seed);
}

} // namespace

int main(int argc, char** argv) {
  std::uint64_t from = 1, count = 1000;
  bool actors = false, mistake = false, anywhere = false, runs = false;
  insula::log::set_level(insula::log::level::error);
  for (int i = 1; i < argc; ++i) {
    const std::string_view what = argv[i];
    const bool has_number = what == "--from" || what == "--seeds" || what == "--seed";
    const auto number = has_number && i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0;
    if (what == "--actors")
      actors = true;
    else if (what == "--mistake")
      mistake = true;
    else if (what == "--anywhere") // See actor_node::take_again.
      anywhere = true;
    else if (what == "--runs") // Not in CI yet: etcd may make a write of which it tells a failure.
      runs = true;
    else if (what == "--loud")
      insula::log::set_level(insula::log::level::debug);
    else if (number == 0) {
      std::cerr << "simulation [--actors] [--mistake] [--anywhere] [--runs] [--loud] [--from N] "
                   "[--seeds N] "
                   "[--seed N]\n";
      return 2;
    } else if (what == "--seeds")
      count = number;
    else
      from = number;
    if (what == "--seed")
      count = 1;
  }
  insula::simulation::counts seen;
  std::size_t failed = 0;
  for (auto seed = from; seed < from + count; ++seed) {
    const auto one = make_history(actors, seed);
    one->mistake = mistake;
    one->repeats_anywhere = anywhere;
    one->has_runs = runs;
    try {
      one->play();
    } catch (const std::exception& why) {
      std::cout << "seed " << seed << ": " << why.what() << std::endl;
      ++failed;
    }
    seen.add(one->seen);
  }
  for (const auto& [what, often] : seen.of)
    std::cout << often << ' ' << what << '\n';
  std::cout << count << " histories, " << failed << " violations\n";
  bool all = true;
  const auto look_for = [&](const char* what) {
    if (count >= many && seen.of[what] == 0) {
      std::cout << "never seen: " << what << '\n';
      all = false;
    }
  };
  if (actors)
    std::for_each(std::begin(seen_with_actors), std::end(seen_with_actors), look_for);
  else
    std::for_each(std::begin(to_be_seen), std::end(to_be_seen), look_for);
  return failed == 0 && all ? 0 : 1;
}

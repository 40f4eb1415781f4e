// Who owns what in a cluster, with a clock, a network and an etcd that are played: thousands of
// histories, each from a seed that plays it again.
#include "tests/simulation/history.hpp"

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
};
constexpr std::uint64_t many = 100;

} // namespace

int main(int argc, char** argv) {
  std::uint64_t from = 1, count = 1000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view what = argv[i];
    const auto number = std::strtoull(argv[i + 1], nullptr, 10);
    if (what == "--from")
      from = number;
    else if (what == "--seeds")
      count = number;
    else if (what == "--seed") {
      from = number;
      count = 1;
    } else {
      std::cerr << "simulation [--from N] [--seeds N] [--seed N]\n";
      return 2;
    }
  }
  insula::simulation::counts seen;
  std::size_t failed = 0;
  for (auto seed = from; seed < from + count; ++seed) {
    insula::simulation::history one{seed};
    try {
      one.play();
    } catch (const std::exception& why) {
      std::cout << "seed " << seed << ": " << why.what() << std::endl;
      ++failed;
    }
    seen.add(one.seen);
  }
  for (const auto& [what, often] : seen.of)
    std::cout << often << ' ' << what << '\n';
  std::cout << count << " histories, " << failed << " violations\n";
  bool all = true;
  for (const auto* what : to_be_seen)
    if (count >= many && seen.of[what] == 0) {
      std::cout << "never seen: " << what << '\n';
      all = false;
    }
  return failed == 0 && all ? 0 : 1;
}

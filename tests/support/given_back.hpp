#pragma once

#include "tests/support/eventually.hpp"

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>

namespace insula::test {

/// Waits until the machine's kernel gives back no more memory, half a minute at most. What earlier
/// sandboxes have held comes back some moments after their end, and hides what is taken meanwhile.
/// The kernel tells nobody of it.
inline void wait_until_given_back() {
  using clock_type = std::chrono::steady_clock;
  const auto slabs = [] {
    std::ifstream lines{"/proc/meminfo"};
    std::uint64_t all = 0, kib = 0;
    for (std::string name, rest; lines >> name >> kib && std::getline(lines, rest);)
      if (name == "Slab:")
        all = kib;
    return all;
  };
  constexpr std::uint64_t little_kib = 1024;
  constexpr std::chrono::milliseconds calm{1500};
  auto lowest = slabs();
  auto fell = clock_type::now();
  eventually(
    [&] {
      if (const auto now = slabs(); now + little_kib < lowest) {
        lowest = now;
        fell = clock_type::now();
      }
      return clock_type::now() - fell >= calm;
    },
    std::chrono::seconds{30});
}

} // namespace insula::test

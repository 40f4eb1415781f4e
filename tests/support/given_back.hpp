#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace insula::test {

/// Waits until the machine's kernel gives back no more memory, half a minute at most. What earlier
/// sandboxes have held comes back some moments after their end, and hides what is taken meanwhile.
inline void wait_until_given_back() {
  const auto slabs = [] {
    std::ifstream lines{"/proc/meminfo"};
    std::uint64_t all = 0, kib = 0;
    for (std::string name, rest; lines >> name >> kib && std::getline(lines, rest);)
      if (name == "Slab:")
        all = kib;
    return all;
  };
  constexpr std::uint64_t little_kib = 1024;
  auto last = slabs();
  for (int i = 0, calm = 0; i < 120 && calm < 6; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{250});
    const auto now = slabs();
    calm = now + little_kib >= last ? calm + 1 : 0;
    last = now;
  }
}

} // namespace insula::test

#pragma once

#include "tests/support/events.hpp"
#include "tests/support/live_node.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <sys/types.h>
#include <thread>

/// What stands still and what runs on.
namespace insula::test {

/// Waits for the answer.
inline bool freeze(live_sandbox& box) {
  const auto still = std::make_shared<events<bool>>();
  (*box).freeze([still](bool good) { still->tell(good); });
  return still->next(std::chrono::seconds{20});
}

/// In ticks of a hundredth of a second.
inline std::uint64_t cpu_of(pid_t process) {
  std::ifstream file{"/proc/" + std::to_string(process) + "/stat"};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  std::istringstream rest{text.substr(std::min(text.rfind(')') + 1, text.size()))};
  std::string skipped;
  for (int i = 0; i < 11; ++i)
    rest >> skipped;
  std::uint64_t user = 0, system = 0;
  rest >> user >> system;
  return user + system;
}

inline bool uses_cpu(pid_t process) {
  const auto before = cpu_of(process);
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  return cpu_of(process) > before;
}

} // namespace insula::test

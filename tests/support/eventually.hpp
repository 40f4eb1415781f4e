#pragma once

#include <chrono>
#include <thread>

namespace insula::test {

/// For states that nothing announces, such as the kernel's tables: looks until it is so. False: not
/// in time.
template <class Condition>
bool eventually(const Condition& is_so,
                std::chrono::milliseconds patience = std::chrono::minutes{1}) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  return true;
}

} // namespace insula::test

#pragma once

#include "benchmarks/report.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace insula::bench {

/// What a number depends on. `state`: where sandboxes are kept. `words`: the command line.
environment describe_machine(const std::string& insula, const std::string& state,
                             const std::vector<std::string>& words);

/// Looks what else the machine is doing, while the benchmark itself does nothing.
class calm {
public:
  explicit calm(std::chrono::seconds patience)
      : patience_(patience) {}

  /// Waits until little else runs, or the patience is over.
  void wait();

  /// Once more after a measurement: somebody may have begun meanwhile.
  void look();

  /// Shares of the CPUs that others used, before and after the measurements.
  std::string describe() const;

private:
  std::chrono::seconds patience_;
  std::vector<double> busy_;
};

} // namespace insula::bench

#include "benchmarks/load/result.hpp"

#include <numeric>

namespace insula::load {

std::uint64_t operation_result::failed() const {
  return std::accumulate(failures.begin(), failures.end(), std::uint64_t{0},
                         [](auto sum, const auto& kind) { return sum + kind.second; });
}

} // namespace insula::load

#pragma once

#include "benchmarks/statistics.hpp"

#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace insula::bench {

/// What a row has to reach; as far as it is set.
struct target {
  std::optional<double> p50;         ///< At most; where higher is better, at least.
  std::optional<double> p99;         ///< At most.
  std::optional<double> times_floor; ///< At most so many times the first floor.
};

/// What the same work costs without Insula, measured beside it.
struct floor_of_row {
  std::string name;
  double p50 = 0;
};

struct row {
  std::string scenario;
  std::string name;
  std::string unit;
  better which = better::lower;
  summary measured;
  std::size_t failures = 0;
  std::string first_failure;
  target wanted;
  std::vector<floor_of_row> floors;
};

row make_row(std::string name, std::string unit, const series& values,
             better which = better::lower);

/// "met", "missed by 12 % (p50)", or empty for a row without a target. Failures are said in any
/// case.
std::string verdict_of(const row& each);
std::string target_of(const row& each);

/// Name and value, in order.
using environment = std::vector<std::pair<std::string, std::string>>;

struct report {
  environment where;
  std::vector<row> rows;
  std::vector<std::string> remarks; ///< What could not be measured, and why.
};

void print(std::ostream& to, const report& all);
void print_json(std::ostream& to, const report& all);

} // namespace insula::bench

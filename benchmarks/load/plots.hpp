#pragma once

#include "base/error.hpp"
#include "benchmarks/load/result.hpp"

#include <string>
#include <vector>

namespace insula::load {

struct picture {
  std::string file; ///< Its name, without a directory.
  std::string title;
  std::string svg;
};

/// For each scenario of the run what can be drawn of it, in their order.
std::vector<std::vector<picture>> draw_plots(const run_result& all);

/// Into this directory, which is made if it is missing. Returns the names. Errors: io_failed.
result<std::vector<std::string>> write_pictures(const std::string& directory,
                                                const std::vector<std::vector<picture>>& pictures);

} // namespace insula::load

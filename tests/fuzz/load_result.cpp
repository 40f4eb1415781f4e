// A run's result as JSON, and everything that is made of one.
#include "benchmarks/load/plots.hpp"
#include "benchmarks/load/reports.hpp"
#include "tests/fuzz/bytes.hpp"

#include <sstream>

using namespace insula;
using namespace insula::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto all = load::parse_json(std::string{text_of(data, size)}, "run.json");
  if (!all) {
    must(all.reason().message.starts_with("run.json: "), "a refusal names the file");
    return 0;
  }
  const auto written = load::to_json(*all);
  const auto again = load::parse_json(written, "run.json");
  must(static_cast<bool>(again), "what was written can be read");
  must(load::to_json(*again) == written, "it is the same again");
  std::ostringstream table;
  load::print_table(table, *all);
  must(load::draw_plots(*all).size() == all->scenarios.size(), "each scenario has its pictures");
  const auto twice = load::merge({*all, *all});
  must(static_cast<bool>(twice), "a run goes together with itself");
  for (std::size_t i = 0; i < all->scenarios.size(); ++i)
    for (const auto& each : twice->scenarios[i].operations)
      must(each.latency.percentile_us(50) <= each.latency.max_us(), "no percentile is above all");
  return 0;
}

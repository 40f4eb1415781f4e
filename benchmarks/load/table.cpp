#include "benchmarks/load/figures.hpp"
#include "benchmarks/load/reports.hpp"

#include <algorithm>
#include <ostream>

namespace insula::load {

namespace {

std::string padding(const std::string& text, std::size_t width) {
  return std::string(width - width_of(text), ' ');
}

/// The first column to the left, numbers to the right.
void print_lines(std::ostream& to, const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], width_of(line[i]));
  for (const auto& line : lines) {
    to << "  " << line[0] << padding(line[0], widths[0]);
    for (std::size_t i = 1; i < line.size(); ++i)
      to << "  " << padding(line[i], widths[i]) << line[i];
    to << '\n';
  }
}

void print_pairs(std::ostream& to, const char* title,
                 const std::map<std::string, std::string>& all) {
  std::size_t widest = 0;
  for (const auto& [name, value] : all)
    widest = std::max(widest, width_of(name));
  if (!all.empty())
    to << '\n' << title << '\n';
  for (const auto& [name, value] : all)
    to << "  " << name << padding(name, widest) << "  " << value << '\n';
}

void print(std::ostream& to, const scenario_result& of) {
  to << '\n' << of.name;
  if (const auto head = headline(of); !head.empty())
    to << ": " << head;
  to << '\n';
  if (const auto given = parameters_text(of); !given.empty())
    to << "  " << given << '\n';
  for (const auto& warning : warnings(of))
    to << "  *** " << warning << " ***\n";
  if (!of.operations.empty())
    print_lines(to, operation_table(of));
  std::vector<std::vector<std::string>> values;
  for (const auto& each : of.values)
    values.push_back({each.name, in_unit(each)});
  if (!values.empty())
    print_lines(to, values);
  for (const auto& each : of.operations)
    if (const auto kinds = failures_text(each); !kinds.empty())
      to << "  failures of " << kinds << '\n';
  for (const auto& note : of.notes)
    to << "  note: " << note << '\n';
  if (const auto itself = client_text(of.client); !itself.empty())
    to << "  client: " << itself << '\n';
}

} // namespace

void print_table(std::ostream& to, const run_result& all) {
  to << all.target << ", " << all.started_at << ", seed " << all.seed;
  if (all.clients != 1)
    to << ", " << all.clients << " clients";
  to << "\nTimes count from the intended start; what failed counts as slower than everything.\n";
  for (const auto& each : all.scenarios)
    print(to, each);
  print_pairs(to, "client", all.client);
  print_pairs(to, "server", all.server);
}

} // namespace insula::load

#include "benchmarks/report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

namespace insula::bench {

namespace {

/// Three significant digits, as far as they are worth a decimal.
std::string number(double value) {
  char text[64];
  const double size = std::fabs(value);
  const int decimals = size >= 100 || size == 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

/// How far beyond the limit, in percent of it; nothing when it is kept.
std::optional<double> excess(double value, std::optional<double> limit, better which) {
  if (!limit)
    return std::nullopt;
  const double beyond = which == better::lower ? value / *limit - 1 : *limit / value - 1;
  return value > 0 && beyond <= 0 ? std::nullopt : std::optional{beyond * 100};
}

std::string floors_of(const row& each) {
  std::string text;
  for (const auto& floor : each.floors)
    if (floor.p50 > 0)
      text +=
        (text.empty() ? "" : ", ") + number(each.measured.p50 / floor.p50) + " x " + floor.name;
  return text;
}

using cells = std::array<std::string, 10>;

cells cells_of(const row& each) {
  const auto& m = each.measured;
  if (m.n == 0)
    return {"  " + each.name, each.unit,        "0", "-", "-", "-", "",
            target_of(each),  verdict_of(each), ""};
  return {"  " + each.name,
          each.unit,
          std::to_string(m.n),
          number(m.p50),
          number(m.p99),
          number(m.worst),
          number(m.lowest_round) + " - " + number(m.highest_round),
          target_of(each),
          verdict_of(each),
          floors_of(each)};
}

void print_cells(std::ostream& to, const cells& line, const std::array<std::size_t, 10>& widths) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const std::string gap(widths[i] - line[i].size(), ' ');
    const bool right = i >= 2 && i <= 5;
    text += right ? gap + line[i] : line[i] + gap;
    text += "  ";
  }
  text.erase(text.find_last_not_of(' ') + 1);
  to << text << '\n';
}

} // namespace

row make_row(std::string name, std::string unit, const series& values, better which) {
  row made;
  made.name = std::move(name);
  made.unit = std::move(unit);
  made.which = which;
  made.measured = values.summarize(which);
  made.failures = values.failures();
  made.first_failure = values.first_failure();
  return made;
}

std::string target_of(const row& each) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (each.wanted.p50)
    add((each.which == better::lower ? "<= " : ">= ") + number(*each.wanted.p50));
  if (each.wanted.p99)
    add("p99 <= " + number(*each.wanted.p99));
  if (each.wanted.times_floor)
    add("<= " + number(*each.wanted.times_floor) + " x floor");
  return text;
}

std::string verdict_of(const row& each) {
  std::string text;
  const auto missed = [&text](std::optional<double> by, const char* what) {
    if (by)
      text += (text.empty() ? "missed by " : ", ") +
              std::to_string(std::max(1L, std::lround(*by))) + " % (" + what + ")";
  };
  const auto& m = each.measured;
  const bool measured = m.n > 0;
  const double floor = each.floors.empty() ? 0 : each.floors.front().p50;
  if (measured) {
    missed(excess(m.p50, each.wanted.p50, each.which), "p50");
    missed(excess(m.p99, each.wanted.p99, each.which), "p99");
    if (floor > 0)
      missed(excess(m.p50 / floor, each.wanted.times_floor, better::lower), "ratio");
  }
  const bool judged = each.wanted.p50 || each.wanted.p99 || (each.wanted.times_floor && floor > 0);
  if (text.empty() && measured && judged)
    text = "met";
  if (!measured)
    text = "not measured";
  if (each.failures > 0)
    text += (text.empty() ? "" : "; ") + std::to_string(each.failures) + " FAILED";
  return text;
}

void print(std::ostream& to, const report& all) {
  std::vector<cells> lines{{"", "unit", "n", "p50", "p99", "worst", "p50 by round", "target",
                            "verdict", "beside its floor"}};
  std::string scenario;
  for (const auto& each : all.rows) {
    if (each.scenario != scenario)
      lines.push_back({scenario = each.scenario});
    lines.push_back(cells_of(each));
  }
  std::array<std::size_t, 10> widths{};
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i)
      if (i != 0 || !line[1].empty()) // A scenario's name may be longer than its column.
        widths[i] = std::max(widths[i], line[i].size());
  for (const auto& line : lines) {
    if (line[1].empty() && !line[0].empty())
      to << '\n' << line[0] << '\n';
    else
      print_cells(to, line, widths);
  }
  to << '\n';
  for (const auto& each : all.rows)
    if (each.failures > 0)
      to << "failed: " << each.scenario << ", " << each.name << ": " << each.first_failure << '\n';
  for (const auto& each : all.remarks)
    to << "remark: " << each << '\n';
  std::size_t name_width = 0;
  for (const auto& [name, value] : all.where)
    name_width = std::max(name_width, name.size());
  for (const auto& [name, value] : all.where)
    to << name << std::string(name_width + 2 - name.size(), ' ') << value << '\n';
}

} // namespace insula::bench

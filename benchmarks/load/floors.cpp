#include "benchmarks/load/floors.hpp"

#include "benchmarks/load/figures.hpp"
#include "benchmarks/load/markdown.hpp"
#include "storage/images/json.hpp"

#include <algorithm>
#include <cmath>

namespace insula::load {

namespace {

using rapidjson::Value;
using storage::images::member;
using storage::images::text_of;

struct floor_of_row {
  std::string name;
  double p50 = 0;
};

std::optional<double> number_of(const Value& of, const char* name) {
  const auto* value = member(of, name);
  return value != nullptr && value->IsNumber() ? std::optional{value->GetDouble()} : std::nullopt;
}

const Value::ConstArray elements_of(const Value& of, const char* name) {
  static const Value none{rapidjson::kArrayType};
  const auto* value = member(of, name);
  return (value != nullptr && value->IsArray() ? *value : none).GetArray();
}

std::string digits_or_dash(std::optional<double> number) {
  return number ? in_digits(*number) : "-";
}

/// "<= 12, p99 <= 30"
std::string target_of(const Value& row) {
  const std::string sign = text_of(row, "better") == "higher" ? ">= " : "<= ";
  std::vector<std::string> all;
  if (const auto p50 = number_of(row, "target_p50"))
    all.push_back(sign + shortened(in_digits(*p50)));
  if (const auto p99 = number_of(row, "target_p99"))
    all.push_back("p99 <= " + shortened(in_digits(*p99)));
  if (const auto times = number_of(row, "target_times_floor"))
    all.push_back("<= " + shortened(in_digits(*times)) + " x floor");
  return joined(all, ", ");
}

std::string ratio_to(const Value& row, const std::string& floor) {
  for (const auto& each : elements_of(row, "floors"))
    if (text_of(each, "name") == floor) {
      const auto ours = number_of(row, "p50"), theirs = number_of(each, "p50");
      return ours && theirs && *theirs > 0 ? in_digits(*ours / *theirs) : "-";
    }
  return "";
}

/// All rows of one scenario.
std::string table_of(const std::vector<const Value*>& rows) {
  std::vector<std::string> floors;
  for (const auto* row : rows)
    for (const auto& each : elements_of(*row, "floors"))
      if (const auto name = text_of(each, "name");
          std::find(floors.begin(), floors.end(), name) == floors.end())
        floors.push_back(name);
  std::vector<std::vector<std::string>> lines{
    {"", "unit", "n", "p50", "p99", "worst", "target", "verdict"}};
  for (const auto& floor : floors)
    lines.front().push_back("x " + floor);
  for (const auto* row : rows) {
    lines.push_back({text_of(*row, "row"), text_of(*row, "unit"),
                     in_thousands(storage::images::number_of(*row, "n")),
                     digits_or_dash(number_of(*row, "p50")), digits_or_dash(number_of(*row, "p99")),
                     digits_or_dash(number_of(*row, "worst")), target_of(*row),
                     text_of(*row, "verdict")});
    for (const auto& floor : floors)
      lines.back().push_back(ratio_to(*row, floor));
  }
  return markdown_table(lines);
}

} // namespace

result<std::string> floors_as_markdown(const std::string& json) {
  const auto document = storage::images::parse_json(json);
  if (!document)
    return error{errc::invalid_request, "the floors: " + document.reason().message};
  const auto rows = elements_of(*document, "rows");
  if (rows.Empty())
    return error{errc::invalid_request,
                 "the floors: expected \"rows\", as insula_bench --json writes them"};
  std::size_t met = 0, missed = 0;
  std::vector<std::pair<std::string, std::vector<const Value*>>> scenarios;
  for (const auto& row : rows) {
    const auto name = text_of(row, "scenario"), verdict = text_of(row, "verdict");
    if (scenarios.empty() || scenarios.back().first != name)
      scenarios.emplace_back(name, std::vector<const Value*>{});
    scenarios.back().second.push_back(&row);
    met += verdict.starts_with("met");
    missed += verdict.starts_with("missed");
  }
  auto page = "Targets: " + std::to_string(met) + " met, " + std::to_string(missed) + " missed.\n";
  for (const auto& [name, of] : scenarios)
    page += "\n### " + markdown_escaped(name) + "\n\n" + table_of(of);
  for (const auto& remark : elements_of(*document, "remarks"))
    if (remark.IsString())
      page += "\nRemark: " + markdown_escaped(remark.GetString()) + "\n";
  if (const auto* where = member(*document, "environment"); where && where->IsObject()) {
    std::vector<std::vector<std::string>> lines{{"Measured with", ""}};
    for (const auto& each : where->GetObject())
      lines.push_back({each.name.GetString(), text_of(*where, each.name.GetString())});
    page += '\n' + markdown_table(lines, true);
  }
  return page;
}

} // namespace insula::load

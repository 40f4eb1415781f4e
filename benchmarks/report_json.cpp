#include "benchmarks/report.hpp"

#include <ostream>
#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

namespace insula::bench {

namespace {

using writer = rapidjson::PrettyWriter<rapidjson::StringBuffer>;

void text(writer& to, const char* key, const std::string& value) {
  to.Key(key);
  to.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
}

void number(writer& to, const char* key, double value) {
  to.Key(key);
  to.Double(value);
}

void number(writer& to, const char* key, std::optional<double> value) {
  if (value)
    number(to, key, *value);
}

void write(writer& to, const row& each) {
  to.StartObject();
  text(to, "scenario", each.scenario);
  text(to, "row", each.name);
  text(to, "unit", each.unit);
  text(to, "better", each.which == better::lower ? "lower" : "higher");
  to.Key("n");
  to.Uint64(each.measured.n);
  to.Key("failures");
  to.Uint64(each.failures);
  if (each.failures > 0)
    text(to, "first_failure", each.first_failure);
  number(to, "p50", each.measured.p50);
  number(to, "p99", each.measured.p99);
  number(to, "worst", each.measured.worst);
  number(to, "lowest_round_p50", each.measured.lowest_round);
  number(to, "highest_round_p50", each.measured.highest_round);
  number(to, "target_p50", each.wanted.p50);
  number(to, "target_p99", each.wanted.p99);
  number(to, "target_times_floor", each.wanted.times_floor);
  to.Key("floors");
  to.StartArray();
  for (const auto& floor : each.floors) {
    to.StartObject();
    text(to, "name", floor.name);
    number(to, "p50", floor.p50);
    to.EndObject();
  }
  to.EndArray();
  text(to, "verdict", verdict_of(each));
  to.EndObject();
}

} // namespace

void print_json(std::ostream& to, const report& all) {
  rapidjson::StringBuffer buffer;
  writer json{buffer};
  json.SetIndent(' ', 2);
  json.SetMaxDecimalPlaces(4);
  json.StartObject();
  json.Key("environment");
  json.StartObject();
  for (const auto& [name, value] : all.where)
    text(json, name.c_str(), value);
  json.EndObject();
  json.Key("remarks");
  json.StartArray();
  for (const auto& each : all.remarks)
    json.String(each.data(), static_cast<rapidjson::SizeType>(each.size()));
  json.EndArray();
  json.Key("rows");
  json.StartArray();
  for (const auto& each : all.rows)
    write(json, each);
  json.EndArray();
  json.EndObject();
  to << buffer.GetString() << '\n';
}

} // namespace insula::bench

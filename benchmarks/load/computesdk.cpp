#include "benchmarks/load/reports.hpp"
#include "benchmarks/load/whole_file.hpp"
#include "http/text/utf8.hpp"

#include <algorithm>
#include <cmath>
#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>
#include <string_view>

namespace insula::load {

namespace {

using writer = rapidjson::PrettyWriter<rapidjson::StringBuffer>;

// The operations of the tti scenarios.
constexpr std::string_view sequential = "tti";
constexpr std::string_view at_once = "tti concurrent";

const char* mode_of(const operation_result& of) {
  return of.name == sequential ? "sequential" : of.name == at_once ? "burst" : "staggered";
}

struct summary {
  double median = 0;
  double p95 = 0;
  double p99 = 0;
};

/// Nearest rank of ascending values, of which there is one at least.
double ranked(const std::vector<double>& ascending, double percent) {
  const auto rank =
    static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(ascending.size())));
  return ascending[std::clamp<std::size_t>(rank, 1, ascending.size()) - 1];
}

/// Of what is left without the fastest and the slowest 5 %, whole ones of them.
summary trimmed(std::vector<double> values) {
  if (values.empty())
    return {};
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 20);
  values.erase(values.end() - cut, values.end());
  values.erase(values.begin(), values.begin() + cut);
  const auto middle = values.size() / 2;
  const bool even = values.size() % 2 == 0;
  return {even ? (values[middle - 1] + values[middle]) / 2 : values[middle], ranked(values, 95),
          ranked(values, 99)};
}

/// 100 for no time at all, 0 for ten seconds and more.
double score(double ms) {
  return std::max(0.0, 100 * (1 - ms / 10'000));
}

double score(const summary& of) {
  return 0.60 * score(of.median) + 0.25 * score(of.p95) + 0.15 * score(of.p99);
}

double two_decimals(double number) {
  return std::round(number * 100) / 100;
}

void text(writer& to, const char* key, const std::string& value) {
  const auto clean = http::to_utf8(value);
  to.Key(key);
  to.String(clean.data(), static_cast<rapidjson::SizeType>(clean.size()));
}

void number(writer& to, const char* key, double value) {
  to.Key(key);
  to.Double(value);
}

void count(writer& to, const char* key, std::uint64_t value) {
  to.Key(key);
  to.Uint64(value);
}

/// What is known about a failure: which one it was is not, if there are several kinds.
std::string why(const operation_result& of) {
  std::string all;
  for (const auto& [kind, times] : of.failures)
    all += (all.empty() ? "" : " or ") + kind;
  return all.empty() ? "failed" : all;
}

void iteration(writer& to, double ms, const std::string& error = {}) {
  to.StartObject();
  number(to, "ttiMs", ms);
  if (!error.empty())
    text(to, "error", error);
  to.EndObject();
}

void write(writer& to, const run_result& all, const scenario_result& in,
           const operation_result& of) {
  std::vector<double> good;
  std::uint64_t bad = 0;
  to.StartObject();
  // A server that says nothing of itself may be anybody's.
  text(to, "provider", all.server.empty() ? all.target : "insula");
  text(to, "mode", mode_of(of));
  text(to, "scenario", in.name);
  to.Key("iterations");
  to.StartArray();
  for (const double ms : of.samples_ms)
    if (ms >= 0) {
      iteration(to, ms);
      good.push_back(ms);
    } else {
      iteration(to, 0, why(of));
      ++bad;
    }
  to.EndArray();
  const auto sum = trimmed(good);
  // What was never begun has no length of its own.
  const auto tried = std::max<std::uint64_t>(of.attempts(), good.size() + bad);
  const auto rate = tried == 0 ? 0 : static_cast<double>(good.size()) / static_cast<double>(tried);
  to.Key("summary");
  to.StartObject();
  to.Key("ttiMs");
  to.StartObject();
  number(to, "median", sum.median);
  number(to, "p95", sum.p95);
  number(to, "p99", sum.p99);
  to.EndObject();
  to.EndObject();
  if (of.name != sequential)
    count(to, "concurrency", tried);
  if (of.name == at_once && !good.empty()) { // All of them count from the same start.
    const auto [first, last] = std::minmax_element(good.begin(), good.end());
    number(to, "wallClockMs", *last);
    number(to, "timeToFirstReadyMs", *first);
  }
  number(to, "compositeScore", rate == 0 ? 0 : two_decimals(score(sum) * rate));
  number(to, "successRate", rate);
  to.EndObject();
}

/// Calls it with every scenario and operation that is measured as they do.
template <class Call>
void each_tti(const run_result& all, Call call) {
  for (const auto& in : all.scenarios)
    if (in.name.starts_with("tti-") && in.skipped.empty())
      for (const auto& of : in.operations)
        if (!of.samples_ms.empty())
          call(in, of);
}

} // namespace

result<void> write_computesdk_json(const std::string& path, const run_result& all) {
  rapidjson::StringBuffer buffer;
  writer to{buffer};
  to.SetIndent(' ', 2);
  to.StartObject();
  text(to, "version", "1.1");
  text(to, "timestamp", all.started_at);
  to.Key("environment");
  to.StartObject();
  text(to, "platform", "linux");
  for (const auto& [name, value] : all.client)
    if (name != "platform")
      text(to, name.c_str(), value);
  to.EndObject();
  std::size_t most = 0;
  each_tti(all, [&](const auto&, const auto& of) { most = std::max(most, of.samples_ms.size()); });
  if (most == 0)
    return error{errc::invalid_request,
                 path + ": not written: no tti scenario was measured one by one"};
  to.Key("config");
  to.StartObject();
  count(to, "iterations", most);
  to.EndObject();
  to.Key("results");
  to.StartArray();
  each_tti(all, [&](const auto& in, const auto& of) { write(to, all, in, of); });
  to.EndArray();
  to.EndObject();
  return write_whole(path, std::string{buffer.GetString(), buffer.GetSize()} + '\n');
}

} // namespace insula::load

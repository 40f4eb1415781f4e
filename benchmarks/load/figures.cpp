#include "benchmarks/load/figures.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace insula::load {

namespace {

/// How many decimals make three digits of it.
int decimals_of(double size) {
  return size >= 99.95 || size == 0 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
}

std::string with_decimals(double number, int decimals) {
  char text[400];
  std::snprintf(text, sizeof text, "%.*f", decimals, number);
  return text;
}

std::string share_text(double share) {
  return in_digits(share * 100) + " %";
}

std::string or_dash(std::optional<double> number) {
  return number ? in_digits(*number) : "-";
}

} // namespace

std::string in_digits(double number) {
  if (!std::isfinite(number))
    return "not a number";
  const auto size = std::fabs(number);
  const auto text = with_decimals(number, decimals_of(size));
  return size < 1000 || size > 1e15
           ? text
           : (number < 0 ? "-" : "") + in_thousands(static_cast<std::uint64_t>(std::llround(size)));
}

std::string in_thousands(std::uint64_t count) {
  auto text = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string in_time(double microseconds) {
  if (!std::isfinite(microseconds))
    return "not a number";
  if (std::fabs(microseconds) < 999.5)
    return with_decimals(microseconds, 0) + " µs";
  if (std::fabs(microseconds) < 999'500)
    return in_digits(microseconds / 1e3) + " ms";
  return in_digits(microseconds / 1e6) + " s";
}

std::string shortened(const std::string& figure) {
  const auto point = figure.find('.');
  if (point == figure.npos)
    return figure;
  const auto end = std::min(figure.find(' '), figure.size());
  const auto last = figure.find_last_not_of('0', end - 1);
  return figure.substr(0, last == point ? point : last + 1) + figure.substr(end);
}

std::string in_unit(const named_value& value) {
  if (value.unit == "ms")
    return in_time(value.value * 1e3);
  if (value.unit == "s")
    return in_time(value.value * 1e6);
  return in_digits(value.value) + (value.unit.empty() ? "" : " " + value.unit);
}

std::string joined(const std::vector<std::string>& texts, const char* between) {
  std::string all;
  for (const auto& each : texts)
    all += (all.empty() ? "" : between) + each;
  return all;
}

std::size_t width_of(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::optional<double> percentile_ms(const operation_result& of, double percent) {
  const auto us = of.latency.percentile_us(percent, of.missing());
  return us ? std::optional{static_cast<double>(*us) / 1e3} : std::nullopt;
}

std::string percentile_text(const operation_result& of, double percent) {
  if (of.attempts() == 0)
    return "-";
  const auto ms = percentile_ms(of, percent);
  return ms ? in_time(*ms * 1e3) : "failed";
}

std::optional<double> rate(const scenario_result& in, const operation_result& of) {
  const auto attempts = static_cast<double>(of.attempts());
  // The starts have one distance less than there are of them; the last one's end is nobody's rate.
  const auto length =
    of.span_seconds > 0 && attempts > 1 ? of.span_seconds * attempts / (attempts - 1) : in.seconds;
  if (!(length > 0))
    return std::nullopt;
  return static_cast<double>(of.latency.count()) / length;
}

std::optional<double> mb_per_second(const operation_result& of) {
  if (of.bytes == 0 || !(of.service.sum_us() > 0))
    return std::nullopt;
  return static_cast<double>(of.bytes) / of.service.sum_us();
}

std::vector<std::string> warnings(const scenario_result& of) {
  std::vector<std::string> all;
  if (!of.skipped.empty())
    all.push_back("SKIPPED: " + of.skipped);
  for (const auto& why : of.void_reasons)
    all.push_back("VOID, the client was the bottleneck: " + why);
  if (!of.partial.empty())
    all.push_back("PARTIAL: " + of.partial);
  return all;
}

std::string headline(const scenario_result& of) {
  if (!of.skipped.empty())
    return of.method;
  auto text = of.method;
  if (of.seconds > 0)
    text += (text.empty() ? "" : "; ") + shortened(in_time(of.seconds * 1e6)) + " measured";
  if (of.warm_up_seconds > 0)
    text += " after " + shortened(in_time(of.warm_up_seconds * 1e6)) + " of warm-up";
  return text;
}

std::string parameters_text(const scenario_result& of) {
  std::vector<std::string> all;
  for (const auto& [name, value] : of.parameters)
    all.push_back(name + " = " + value);
  return joined(all, ", ");
}

std::string failures_text(const operation_result& of) {
  std::vector<std::string> all;
  for (const auto& [kind, times] : of.failures)
    all.push_back(kind + " (" + in_thousands(times) + ")");
  if (of.dropped != 0)
    all.push_back("dropped (" + in_thousands(of.dropped) + ")");
  return all.empty() ? "" : of.name + ": " + joined(all, ", ");
}

std::string client_text(const client_result& of) {
  if (!(of.seconds > 0))
    return {};
  return share_text(of.cpu_seconds / of.seconds) + " of a CPU, its busiest thread " +
         share_text(of.busiest_thread_share) + "; timers late by " +
         in_time(static_cast<double>(of.timer_lateness.percentile_us(99))) + " at p99, " +
         in_time(static_cast<double>(of.timer_lateness.max_us())) + " at most; " +
         in_thousands(of.open_files_max) + " of " + in_thousands(of.open_files_limit) +
         " files open";
}

std::vector<std::vector<std::string>> operation_table(const scenario_result& of) {
  const bool moves_bytes = std::any_of(of.operations.begin(), of.operations.end(),
                                       [](const auto& each) { return each.bytes != 0; });
  std::vector<std::vector<std::string>> lines{{"", "attempts", "ok", "failed", "dropped", "late",
                                               "ok/s", "p50", "p90", "p99", "p99.9", "max",
                                               "service p50"}};
  if (moves_bytes)
    lines.front().push_back("MB/s");
  for (const auto& each : of.operations) {
    const auto service = each.service.count() == 0
                           ? "-"
                           : in_time(static_cast<double>(each.service.percentile_us(50)));
    lines.push_back({each.name, in_thousands(each.attempts()), in_thousands(each.latency.count()),
                     in_thousands(each.failed()), in_thousands(each.dropped),
                     in_thousands(each.late), or_dash(rate(of, each)), percentile_text(each, 50),
                     percentile_text(each, 90), percentile_text(each, 99),
                     percentile_text(each, 99.9), percentile_text(each, 100), service});
    if (moves_bytes)
      lines.back().push_back(or_dash(mb_per_second(each)));
  }
  return lines;
}

} // namespace insula::load

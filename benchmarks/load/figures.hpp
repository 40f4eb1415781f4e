#pragma once

#include "benchmarks/load/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// A result's figures as a person reads them: the same in a terminal, in Markdown and in pictures.
namespace insula::load {

/// "850 µs", "1.32 ms", "12 s": three digits at most.
std::string in_time(double microseconds);
/// Three digits at most, thousands apart: "0.512", "1,331".
std::string in_digits(double number);
std::string in_thousands(std::uint64_t count);
/// Without zeros that say nothing: "30 s" for "30.0 s".
std::string shortened(const std::string& figure);
/// A value in its unit: milliseconds as the time they are.
std::string in_unit(const named_value& value);
/// "a; b".
std::string joined(const std::vector<std::string>& texts, const char* between = "; ");

/// How many characters a terminal shows.
std::size_t width_of(std::string_view utf8);

/// From the intended start, counting what is missing as the slowest. None: it falls on these.
std::optional<double> percentile_ms(const operation_result& of, double percent);
/// The same as a text: "failed" where it falls on what is missing, "-" when nothing was tried.
std::string percentile_text(const operation_result& of, double percent);

/// Successes per second of measuring; none if no time is known.
std::optional<double> rate(const scenario_result& in, const operation_result& of);
/// Million bytes per second that one of them moved while it was under way; none without bytes.
std::optional<double> mb_per_second(const operation_result& of);

/// What a reader has to know before the figures: "VOID: …", "PARTIAL: …", "SKIPPED: …".
std::vector<std::string> warnings(const scenario_result& of);
/// "one after the other; 25 s measured after 2 s of warm-up".
std::string headline(const scenario_result& of);
/// "rate = 200, seed = 7"; empty for none.
std::string parameters_text(const scenario_result& of);
/// "exec: status 503 (3), timeout (1)"; empty for none.
std::string failures_text(const operation_result& of);
/// What the client found out about itself; empty when it did not look.
std::string client_text(const client_result& of);

/// Headings, then a line for each operation; all lines have as many cells.
std::vector<std::vector<std::string>> operation_table(const scenario_result& of);

} // namespace insula::load

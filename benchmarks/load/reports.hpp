#pragma once

#include "base/error.hpp"
#include "benchmarks/load/result.hpp"

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

/// What becomes of a run's result: files, tables, pictures and a verdict. Everything here may be
/// called by any thread, and keeps nothing. A file is written beside its name and then renamed, so
/// that under the name there is the old one or the new one, whole; errors (io_failed) name it.
namespace insula::load {

// ---- As a file ----

/// All of the result, as a file or a text: histograms by their steps, the seconds, everything else
/// as it is.
result<void> write_json(const std::string& path, const run_result& all);
std::string to_json(const run_result& all);

/// Exactly what was written. Errors: io_failed; invalid_request with the place in the document if
/// it is anything else than that, or larger than a run's result may be.
result<run_result> read_json(const std::string& path);
/// The same of a text. Errors say `name` in front.
result<run_result> parse_json(const std::string& text, const std::string& name);

/// One result of those of several clients that were one run. Scenarios belong together by name, and
/// have to be the same ones with the same parameters and methods; operations and values by name.
///
/// - Histograms, failures, bytes and seconds are added; the lengths of time are the longest.
/// - Values: counts and rates (no unit, or one per second) add up. Of others the worse one counts:
///   the lowest where higher is better, else the highest.
/// - A scenario is void or partial if it is for one of them, skipped if it is for all. What only
///   some have skipped counts as partial. Notes are kept, each once.
/// - What clients found out about themselves: CPU time and the lateness of timers are added, of
///   the rest the busiest client's counts.
///
/// Errors: invalid_request, which says what differs.
result<run_result> merge(std::vector<run_result> clients);

/// The tti scenarios in the shape of ComputeSDK's sandbox benchmarks, with its definitions.
/// Errors also: invalid_request, if no such scenario was measured.
result<void> write_computesdk_json(const std::string& path, const run_result& all);

// ---- To be read ----

/// A table for a terminal. Lengths of time count from the intended start.
void print_table(std::ostream& to, const run_result& all);

/// One SVG file for each picture: latency by percentile and throughput over time for each scenario,
/// and what growth there is. Returns the names in the directory, in the order of the scenarios.
result<std::vector<std::string>> write_plots(const std::string& directory, const run_result& all);

// ---- To be judged ----

struct verdict {
  bool passed = false;
  std::vector<std::string> lines; ///< One for each threshold, and for each scenario that says
                                  ///< nothing: void, partial, skipped.
};

/// Holds a result against a file of thresholds: see benchmarks/README.md. A scenario that is named
/// there and is void, partial, skipped or missing does not pass; nor does an operation or a value
/// that is missing. Errors: io_failed; invalid_request with file and line.
result<verdict> judge(const std::string& thresholds_path, const run_result& all);
/// The same of a text. Errors say `name` in front.
result<verdict> judge_text(const std::string& text, const std::string& name, const run_result& all);

// ---- The page ----

/// `directory`/README.md and its plots. `floors_json`: the text that `insula_bench --json` has
/// written, for what stands beside its floor; empty for none. `judged`: what thresholds have said,
/// if any. What stands between `<!-- by hand -->` and `<!-- /by hand -->` in a README.md that is
/// there already is kept. Errors: io_failed; invalid_request if such a mark has no other end, or if
/// the floors are no such file.
result<void> write_page(const std::string& directory, const run_result& all,
                        const std::string& floors_json, const verdict* judged = nullptr);

// ---- The machine ----

/// The one this runs on: kernel, cpu, cpus, memory, cgroups, system, and insula's version and
/// commit as this program was built.
std::map<std::string, std::string> describe_machine();

} // namespace insula::load

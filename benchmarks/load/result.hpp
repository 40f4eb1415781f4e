#pragma once

#include "benchmarks/load/histogram.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// What a run has found: what the generator writes, what the reports read, and what several clients
/// of one run are merged from. Plain values.
namespace insula::load {

/// One second of one operation, counted from the scenario's start of measuring.
struct second_point {
  std::uint64_t started = 0;
  std::uint64_t ok = 0;
  std::uint64_t failed = 0;
  std::uint64_t dropped = 0;
  std::uint64_t sum_us = 0; ///< Of the ok ones' latencies, which ended in this second.
  std::uint64_t max_us = 0;

  bool operator==(const second_point&) const = default;
};

/// One kind of thing that a scenario does over and over: "exec", "create", "first byte".
struct operation_result {
  std::string name;
  /// Of those that succeeded, from the *intended* start to the end. A percentile that is shown
  /// counts what failed and what was dropped as slower than all of them.
  histogram latency;
  /// The same from the moment it was really begun. Beside `latency` it shows what waiting cost.
  histogram service;
  std::map<std::string, std::uint64_t>
    failures;                ///< By kind: "status 503", "refused", "cut", "timeout".
  std::uint64_t late = 0;    ///< Begun more than a millisecond after the intended start.
  std::uint64_t dropped = 0; ///< Never begun, since too many were under way: a failure as well.
  std::uint64_t bytes = 0;   ///< Payload moved by those that succeeded.
  /// From the first start that counts to the last one: what a rate is of. 0: all began at once, or
  /// it is not known.
  double span_seconds = 0;
  std::vector<second_point> seconds;
  /// Each measured length in order, milliseconds, where there are few (sequential scenarios); a
  /// failed one is negative. The definitions that trim need them.
  std::vector<double> samples_ms;

  [[nodiscard]] std::uint64_t failed() const; ///< Without those that were dropped.
  [[nodiscard]] std::uint64_t missing() const { return failed() + dropped; }
  [[nodiscard]] std::uint64_t attempts() const { return latency.count() + missing(); }

  bool operator==(const operation_result&) const = default;
};

/// A single figure that is no distribution.
struct named_value {
  std::string name; ///< "wall clock", "first ready", "sandboxes live"
  double value = 0;
  std::string unit; ///< "ms", "1/s", "MB/s", "MiB", "" for counts
  bool higher_is_better = false;

  bool operator==(const named_value&) const = default;
};

/// What the client found out about itself while a scenario ran.
struct client_result {
  double seconds = 0;
  double cpu_seconds = 0;           ///< Of the client's processes, all threads.
  double busiest_thread_share = 0;  ///< CPU of its busiest thread, 0 to 1.
  histogram timer_lateness;         ///< How late its own timers fired, ticking all the while.
  std::uint64_t open_files_max = 0; ///< Of one process.
  std::uint64_t open_files_limit = 0;

  bool operator==(const client_result&) const = default;
};

struct scenario_result {
  std::string name;
  std::string
    method; ///< "open loop, Poisson, 200/s", "closed loop, 8 at once", "one after the other"
  std::map<std::string, std::string> parameters;
  double warm_up_seconds = 0;
  double seconds = 0; ///< Of measuring.
  std::vector<operation_result> operations;
  std::vector<named_value> values;
  client_result client;
  std::vector<std::string> void_reasons; ///< Not empty: the client was the bottleneck; the figures
                                         ///< say nothing about the server.
  std::string skipped;                   ///< Why it did not run at all.
  std::string partial; ///< Why it ended early; what is here was measured before that.
  std::vector<std::string> notes;

  bool operator==(const scenario_result&) const = default;
};

struct run_result {
  std::string target;     ///< The base URL; never the key.
  std::string started_at; ///< ISO 8601, UTC.
  std::string command;    ///< As it was typed, without the key.
  std::uint64_t seed = 0;
  std::uint32_t clients = 1; ///< How many processes are merged into this.
  std::map<std::string, std::string>
    client; ///< Its machine: kernel, cpus, memory, cgroups, version, commit.
  std::map<std::string, std::string>
    server; ///< What the server says of itself; empty if it says nothing.
  std::vector<scenario_result> scenarios;

  bool operator==(const run_result&) const = default;
};

} // namespace insula::load

#pragma once

#include "base/error.hpp"
#include "benchmarks/load/http_client.hpp"
#include "benchmarks/load/result.hpp"
#include "benchmarks/load/scenario.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace insula::load {

struct run_options {
  client_options server;
  std::vector<std::string> scenarios; ///< By name, in the order in which they run.
  bool quick = false;
  settings set;
  arrivals kind = arrivals::poisson;
  std::size_t max_in_flight = 0; ///< 0: what the open files allow, at most 4,096.
  std::size_t closed = 0;
  std::uint64_t seed = 1;
  share part; ///< Of this process.
  unsigned threads = 1;
  std::optional<std::chrono::system_clock::time_point> start_at;
  std::chrono::milliseconds patience{30'000};  ///< Of one request.
  std::chrono::seconds scenario_patience{900}; ///< Beside the duration that it is given.
  bool show_progress = true;
};

/// Whether all of it makes sense, without asking the server anything. Errors: invalid_request.
result<void> check(const run_options& options);

/// Runs the scenarios one after the other against a server that is looked at before. Everything
/// else than what makes the whole run impossible stands in the result. An interrupt ends it early
/// and in order; watch_for_interrupts() has to have been called.
///
/// Errors: io_failed, if nobody answers there; unauthorized; invalid_request as check();
/// limit_reached if there are not enough open files.
result<run_result> run(const run_options& options);

/// "2026-11-22T03:04:05Z".
std::string iso_time(std::chrono::system_clock::time_point when);
/// The same back, or "+12s" from now.
std::optional<std::chrono::system_clock::time_point> parse_start(std::string_view text);

} // namespace insula::load

#pragma once

#include "base/error.hpp"
#include "benchmarks/load/bridge.hpp"
#include "benchmarks/load/control.hpp"
#include "benchmarks/load/recorder.hpp"
#include "benchmarks/load/schedule.hpp"
#include "benchmarks/load/self_watch.hpp"

#include <deque>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace insula::load {

/// What a parameter's text has to be.
enum class parameter_kind : std::uint8_t {
  count,
  count_or_none,  ///< 0 is allowed.
  number,         ///< Greater than 0, at most ten million.
  seconds,        ///< "10", "10s", "500ms", "2m" or "1h", at most a week.
  counts,         ///< "1,10,100"
  counts_or_none, ///< "0,10,100"
  words,
};

struct parameter {
  const char* name;
  parameter_kind kind;
  const char* value; ///< Unless told otherwise, and in a quick run.
  const char* quick;
  const char* about;
};

using settings = std::map<std::string, std::string>;

class scenario_context;

struct scenario {
  const char* name;
  const char* about; ///< What is done, and what the clock sees.
  std::vector<parameter> parameters;
  /// Several threads, processes and hosts can share it. Others run in one thread of one process.
  bool shared;
  /// It looks for the point where things fail: failures are its finding and not a fault.
  bool fails_on_purpose;
  task<> (*run)(scenario_context&);
};

const std::vector<scenario>& all_scenarios();
const scenario* find_scenario(std::string_view name);

/// What a scenario runs with: its defaults, and what was set for it. A name in `set` is that of a
/// parameter, or "scenario.parameter", which wins. Errors: invalid_request, for a text that is not
/// what the parameter wants.
result<settings> settings_of(const scenario& what, bool quick, const settings& set);

/// "500ms" to seconds; none if it is no length of time.
std::optional<double> parse_seconds(std::string_view text);

/// The scenario cannot go on. What it has measured is kept.
struct scenario_failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// It has nothing to measure here.
struct scenario_skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// How load is made where the scenario leaves it open.
struct load_shape {
  arrivals kind = arrivals::poisson;
  std::size_t max_in_flight = 4096; ///< Of the whole run. One more is dropped.
  std::size_t closed = 0;           ///< Clients of a closed loop in place of the open one.
};

/// What one thread needs for its part of a scenario.
class scenario_context {
public:
  struct parts {
    asio::io_context& io;
    http_client& http;
    bridge& api;
    control& steering;
    self_watch& watch;
    load_shape shape;
    share part;           ///< Of the whole run: threads, processes and hosts.
    bool other_processes; ///< The whole run is more than this process.
    std::uint64_t seed;
    bool same_machine; ///< As the server.
  };

  scenario_context(const parts& given, settings set)
      : with(given)
      , random(seed_of(given.seed, given.part))
      , set_(std::move(set)) {}
  scenario_context(const scenario_context&) = delete;
  scenario_context& operator=(const scenario_context&) = delete;

  // ---- Parameters; settings_of() has looked at their texts.

  std::uint64_t count(const std::string& name) const;
  double number(const std::string& name) const;
  clock::duration seconds(const std::string& name) const;
  std::vector<std::uint64_t> counts(const std::string& name) const;
  std::vector<std::string> words(const std::string& name) const;
  const settings& all_settings() const { return set_; }
  /// This thread's part of a count of the whole run.
  std::uint64_t part(const std::string& name) const { return with.part.part_of(count(name)); }

  // ---- Measuring

  /// Stays where it is. The same name gives the same recorder.
  recorder& operation(const std::string& name, bool keeps_samples = false);
  /// The measuring begins now, or then.
  void measure_from(clock::time_point when);
  void value(std::string name, double value, std::string unit, bool higher_is_better = false);

  /// Waits until all threads (and processes, by the clock on the wall) are ready; when they begin.
  task<clock::time_point> start_together();
  bool ending() const { return with.steering.ending(); }

  // ---- Sandboxes

  /// That many, each of which has run a command. Throws scenario_failed.
  task<std::vector<std::string>> live_sandboxes(std::uint64_t count);

  const parts with;
  std::mt19937_64 random;
  scenario_result found; ///< Its name, parameters and operations are filled in by the runner.
  std::deque<recorder> operations;
  clock::time_point measured_from = clock::time_point::max(); ///< When the measuring begins.
  bool open_loop = false;

private:
  settings set_;
};

} // namespace insula::load

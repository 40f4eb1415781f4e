#pragma once

#include "benchmarks/load/result.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace insula::load {

/// What a finished run comes to, beside its figures.
struct verdict_inputs {
  double allowed_failures = 0; ///< Share of the attempts of a scenario.
  bool thresholds_missed = false;
  bool unwritten = false; ///< A report could not be written.
  bool interrupted = false;
};

/// The exit status of `insula bench`, as its help explains. The most basic trouble wins.
int status_of(const run_result& all, const verdict_inputs& how);

/// `insula bench`: measures a server through its API. See its own help.
class bench_command {
public:
  /// Adds it to the program's commands.
  explicit bench_command(CLI::App& program);
  ~bench_command();
  bench_command(const bench_command&) = delete;
  bench_command& operator=(const bench_command&) = delete;

  /// Whether the command line is about it, also if it makes no sense otherwise.
  bool is_meant() const;
  /// After the command line was parsed; `words` is all of it. None: it is about something else.
  std::optional<int> run(const std::vector<std::string>& words);

  /// For a command line that makes no sense.
  static constexpr int status_unusable = 1;

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace insula::load

#pragma once

#include "benchmarks/bridge_client.hpp"
#include "benchmarks/insula_server.hpp"
#include "benchmarks/report.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace insula::bench {

/// What every scenario is given.
struct bench {
  std::string insula;  ///< The program that is measured.
  std::string scratch; ///< A directory for servers; emptied by those who use it.
  std::string nginx;   ///< Empty where there is none, as the next two.
  std::string bwrap;
  std::string node;
  bool quick = false;
  std::mt19937_64 random;

  std::size_t repeat(std::size_t full, std::size_t short_run) const {
    return quick ? short_run : full;
  }

  /// A fresh server, which nothing has worn out. `yaml`: sections of cluster.yaml other than
  /// `runtime`.
  std::unique_ptr<insula_server> start_insula(const std::string& yaml = {}) const;
};

/// One thing that is measured, several rounds of it, and the rows that it gives.
class scenario {
public:
  virtual ~scenario() = default;
  virtual std::string name() const = 0;
  virtual std::string about() const = 0; ///< For `--list`.

  /// One round. May throw: then the round counts as one failure of this scenario.
  virtual void measure(bench& with) = 0;
  virtual void tell(const bench& with, report& all) const = 0;
};

std::vector<std::unique_ptr<scenario>> all_scenarios();

std::unique_ptr<scenario> make_cold_create();
std::unique_ptr<scenario> make_privileges();
std::unique_ptr<scenario> make_live_exec();
std::unique_ptr<scenario> make_live_shell();
std::unique_ptr<scenario> make_thaw();
std::unique_ptr<scenario> make_restart();
std::unique_ptr<scenario> make_durable_store();
std::unique_ptr<scenario> make_burst();
std::unique_ptr<scenario> make_churn();
std::unique_ptr<scenario> make_files();
std::unique_ptr<scenario> make_archives();
std::unique_ptr<scenario> make_idle_memory();
std::unique_ptr<scenario> make_request_cpu();
std::unique_ptr<scenario> make_network();
std::unique_ptr<scenario> make_previews();
std::unique_ptr<scenario> make_execd();
std::unique_ptr<scenario> make_mounts();
std::unique_ptr<scenario> make_abuse();
std::unique_ptr<scenario> make_image_import();
std::unique_ptr<scenario> make_lists();

/// Runs the steps in random order; what one throws is counted as its failure.
struct step {
  series* fails;
  std::function<void()> go;
};
void run_in_random_order(bench& with, std::vector<step> steps);

/// Starts `count` threads, lets them prepare, and lets them go at once. `prepare` may be empty.
/// Answers the moment at which they went. What `go` throws counts as a failure; an interrupt is
/// passed on.
clock::time_point run_at_once(std::size_t count, const std::function<void(std::size_t)>& prepare,
                              const std::function<void(std::size_t)>& go, series& fails);

/// The commands that are run everywhere: in sandboxes, on the machine, in bubblewrap.
command echo_hi();
command true_command();
command node_version();

/// The same command as the API runs it, for the machine itself.
std::vector<std::string> shell_command(const command& what);

} // namespace insula::bench

#pragma once

#include "benchmarks/load/http_client.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace insula::load {

/// How one thing that was asked for has ended.
struct ending {
  std::string failure; ///< Empty: as it should. Otherwise one word of failure::, "status 503" …
  clock::time_point at = clock::now(); ///< When what is measured was there.
  std::uint64_t bytes = 0;             ///< Payload that was moved.

  bool ok() const { return failure.empty(); }
};

struct command {
  std::vector<std::string> argv;
  /// What it has to print; anything will do if there is none.
  std::optional<std::string> output;
  std::chrono::milliseconds patience{60'000};
  std::string session = {}; ///< The shell that runs it; empty: a process of its own.
};

struct exec_ending : ending { ///< `at`: the exit event.
  clock::time_point first_output = clock::time_point::max();
  std::string output; ///< Of stdout, its first 64 KiB.
  int exit_code = -1;
};

struct created : ending {
  std::string id;
};

struct pool_stats {
  std::string missing; ///< Why there is no pool; the rest counts if this is empty.
  std::uint64_t warm = 0;
  std::uint64_t target = 0;
};

/// The sandbox bridge's API. Belongs to one thread, as the client that it uses does.
///
/// It remembers the sandboxes that it has made until they are deleted, so that nothing stays
/// behind, whatever becomes of the one who made them.
class bridge {
public:
  bridge(http_client& http, std::chrono::milliseconds patience)
      : http_(http)
      , patience_(patience) {}

  /// An id; the sandbox itself starts with its first use.
  task<created> create();
  task<exec_ending> exec(std::string id, command what);
  task<ending> remove(std::string id);
  task<ending> write_file(std::string id, std::string path, pattern bytes);
  /// Compares with what was written.
  task<ending> read_file(std::string id, std::string path, pattern bytes);
  /// `archive`: where it goes to, up to the 32 MiB that a hydrate takes.
  task<ending> persist(std::string id, std::string& archive);
  task<ending> hydrate(std::string id, const std::string& archive);
  /// A shell of that name, which lasts.
  task<ending> create_session(std::string id, std::string session);
  task<ending> remove_session(std::string id, std::string session);

  task<http_answer> health();
  task<pool_stats> pool();
  task<ending> prime_pool();
  /// What the server says of itself: `insula_build_info`'s labels. Empty where it says nothing.
  task<std::map<std::string, std::string>> build_info();
  /// A figure out of /metrics; none where there is none.
  task<std::optional<double>> metric(std::string name);

  const std::set<std::string>& made() const { return made_; }
  /// Deletes all that it has made and are still there, but for those that are kept, and says how
  /// many could not be. Takes a minute at most.
  task<std::size_t> remove_all(std::set<std::string> kept = {});

  std::chrono::milliseconds patience() const { return patience_; }

private:
  http_request asking(std::string_view method, std::string target) const;

  http_client& http_;
  std::chrono::milliseconds patience_;
  std::set<std::string> made_;
};

/// What stands behind a metric's name in Prometheus' text, and the labels that it has.
struct metric_line {
  std::map<std::string, std::string> labels;
  double value = 0;
};
std::optional<metric_line> find_metric(std::string_view text, std::string_view name);

/// The body of an exec request.
std::string exec_body(const std::vector<std::string>& argv);

} // namespace insula::load

#pragma once

#include "benchmarks/clock.hpp"
#include "benchmarks/http_client.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace insula::bench {

/// A command line as the API takes it, and what it has to print, as base64: one that prints
/// something else, or does not exit with 0, counts as a failure.
struct command {
  std::vector<std::string> argv;
  std::string output;
};

struct exec_times {
  double first_ms = 0; ///< Until the first event of the stream, be it output or the exit.
  double exit_ms = 0;  ///< Until the exit event.
  std::string output;  ///< Of stdout, still base64.
};

/// The sandbox bridge's API over one kept connection. Every function throws std::runtime_error
/// unless all went well.
class bridge_client {
public:
  bridge_client(std::uint16_t port, std::string key)
      : http_(port, std::move(key)) {}

  void ready() { http_.ready(); }

  /// A new sandbox's id; the sandbox itself starts with its first use.
  std::string create();

  /// Runs a command to its end. Times count from `since`. `fields`: as request_text().
  exec_times exec(const std::string& id, const command& what, clock::time_point since,
                  std::string_view fields = {});

  void remove(const std::string& id);
  void write_file(const std::string& id, const std::string& path, std::string_view bytes);

  /// Hands the file out in pieces.
  void read_file(const std::string& id, const std::string& path, response_reader::body_fn on_bytes);

  /// The size of the workspace's archive, which is thrown away.
  std::size_t persist(const std::string& id);
  void hydrate(const std::string& id, std::string_view archive);

private:
  http_client http_;
};

/// The body of an exec request. Escapes what JSON wants escaped.
std::string exec_body(const std::vector<std::string>& argv);

} // namespace insula::bench

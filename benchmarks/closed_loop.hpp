#pragma once

#include "base/unique_fd.hpp"
#include "benchmarks/response_reader.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::bench {

/// Many kept connections in one thread, each of which asks again as soon as it has its answer. For
/// what a request costs the server; not for latency under load, which wants an open loop.
class closed_loop {
public:
  struct traffic {
    /// The next request's text; valid until the next call.
    std::function<std::string_view()> next;
    /// Whether an answer is the right one.
    std::function<bool(int status, std::string_view body)> expected;
  };

  struct outcome {
    std::uint64_t requests = 0; ///< Answered as expected.
    std::uint64_t failures = 0; ///< Anything else, a broken connection included.
    std::string first_failure;
    double seconds = 0;
  };

  /// Connects. Throws std::system_error.
  closed_loop(std::uint16_t port, std::size_t connections);

  /// Ends once the time is over and every question has been answered.
  outcome run(const traffic& what, std::chrono::milliseconds length);

private:
  struct connection {
    unique_fd socket;
    response_reader reader;
    std::string body;
  };

  void connect(connection& each);
  void ask(connection& each, std::string_view text);

  std::uint16_t port_;
  unique_fd events_;
  std::vector<connection> all_;
};

} // namespace insula::bench

#pragma once

#include "base/metrics.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace insula::http {

enum class verb : std::uint8_t;

/// The requests of one row of the table, or of one method that meets none.
struct route_figures {
  std::string_view method;
  std::string_view api; ///< Which API the row is of; "none": of no row.
  std::string route;    ///< The row's pattern, never a request's path.

  /// Each status that is answered here has a place of its own; others share one.
  static constexpr std::array<int, 18> statuses{101, 200, 204, 400, 401, 403, 404, 409, 410,
                                                413, 414, 429, 431, 500, 502, 503, 504, 505};
  std::array<metrics::counter, statuses.size() + 1> answered;
  metrics::counter aborted; ///< The client was gone before its answer was complete, or it was cut.
  metrics::histogram duration;
  metrics::histogram head;       ///< Of an answer that is streamed: until its head left,
  metrics::histogram first_byte; ///< and its first byte.

  void count(int status, std::chrono::nanoseconds took);
  void count_aborted(std::chrono::nanoseconds after);
};

/// What the HTTP side counts. of() before anything is served; the rest from any thread.
class figures {
public:
  figures();

  /// Of a row; the same for the same method and pattern. `api` lives as long as the program.
  route_figures& of(verb method, std::string_view pattern, std::string_view api);
  /// Of what no row is for, and of what is no request at all (with verb::other).
  route_figures& unmatched(verb method);

  metrics::gauge connections;
  metrics::gauge web_sockets; ///< Of the connections.
  metrics::counter sent_away; ///< Connections closed to make room for others.
  metrics::gauge in_flight;   ///< Requests, from their header to their answer's end.
  metrics::counter bytes_in;
  metrics::counter bytes_out;

  void write(metrics::text& into) const;

private:
  template <class Append>
  void each_route(Append append) const;

  std::deque<route_figures> routes_; ///< Those of unmatched() first.
};

} // namespace insula::http

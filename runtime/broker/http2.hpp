#pragma once

#include "runtime/broker/exchange.hpp"
#include "runtime/broker/http1.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

/// HTTP/2 over a connection, towards a client and towards a server. nghttp2 reads and writes the
/// frames and holds the rules of RFC 9113 about them.
/// Ceilings: streams and the tasks that do requests, also of streams that were reset; resets of
/// clients in a time; bytes and fields of heads; frames that wait for a side that does not read;
/// and of each body what its window has room for: it is opened as the body is taken.
namespace insula::runtime::broker {

inline constexpr std::size_t http2_streams = 100, http2_window_bytes = 256u << 10;

/// All requests of a client, many at once, until the connection ends. A client that has no request
/// under way for `idle` is let go of.
task<void> serve_http2(stream& client, const request_handler& handle,
                       std::chrono::milliseconds idle);

/// A connection to a server that many requests share.
class http2_connection {
public:
  /// `server` has agreed on "h2", and outlives it.
  explicit http2_connection(stream& server);
  ~http2_connection();
  http2_connection(const http2_connection&) = delete;
  http2_connection& operator=(const http2_connection&) = delete;

  /// Until the connection ends. One task of its owner's does this.
  task<void> run();
  /// Null: it takes no more requests. What is made is used while this is there.
  std::unique_ptr<outgoing> begin();
  bool takes_more() const;
  std::size_t open_requests() const;
  void cut();

private:
  class impl;
  std::shared_ptr<impl> impl_;
};

} // namespace insula::runtime::broker

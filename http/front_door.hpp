#pragma once

#include "base/error.hpp"
#include "base/limits.hpp"
#include "http/connection.hpp"
#include "http/exchange.hpp"
#include "http/figures.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace insula::http {

struct tls_files {
  std::string certificate; ///< PEM, the chain included.
  std::string key;         ///< PEM.
};

struct front_door_options {
  std::string address;
  std::uint16_t port = 0;
  std::optional<tls_files> tls;
  unsigned threads = 2;
  unsigned max_connections = 8192;
  std::uint64_t buffered_body_bytes = limits::buffered_body_bytes;
  time_limits time;
  std::shared_ptr<figures> counts = std::make_shared<figures>();
};

/// Listens, speaks HTTP/1.1, and asks `admit` about every request once its header is there.
/// RESTinio is behind this and nowhere else.
///
/// Threads: its own; `admit` and what it returns are called on the connection's strand, for one
/// connection
///          never concurrently. They must not block.
/// Owner:   the caller. Answers to a front door that is gone go nowhere.
class front_door {
public:
  using admit_fn = connection::admit_fn;

  front_door(front_door_options options, admit_fn admit);
  ~front_door();

  /// Errors: io_failed, naming address and reason; invalid_request for unusable TLS files.
  result<void> start();
  std::uint16_t port() const;

  /// Accepts nothing more, gives open requests up to `patience` to end, then cuts them. Called
  /// again, it lets go of what others have posted to the connections since.
  void stop(std::chrono::milliseconds patience);

private:
  class core;
  std::shared_ptr<core> core_;
};

} // namespace insula::http

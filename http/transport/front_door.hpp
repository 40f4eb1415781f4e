#pragma once

#include "base/error.hpp"
#include "base/io_pool.hpp"
#include "base/limits.hpp"
#include "http/transport/connection.hpp"
#include "http/transport/exchange.hpp"
#include "http/transport/figures.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace insula::http {

struct tls_files {
  std::string certificate; ///< PEM, the chain included.
  std::string key;         ///< PEM.
  /// PEM. Whoever connects shows a certificate that this one has signed, by TLS 1.3. Empty: nobody
  /// has to.
  std::string authority = {};
};

/// What stands in the files of certificate and key.
struct tls_text {
  std::string certificate;
  std::string key;
};

struct front_door_options {
  std::string address;
  std::uint16_t port = 0;
  std::optional<tls_files> tls;
  unsigned max_connections = 8192; ///< At once, and how they share them: see places.
  std::uint64_t buffered_body_bytes = limits::buffered_body_bytes;
  time_limits time;
  std::shared_ptr<figures> counts = std::make_shared<figures>();
  std::vector<int> inherited; ///< As listener::open() has them. The caller's.
  /// With an authority: whether whoever has the certificate of this name may connect. Any thread.
  connection::knows_fn knows = nullptr;
};

/// Listens, speaks HTTP/1.1, and asks `admit` about every request once its header is there.
/// RESTinio is behind this and nowhere else.
///
/// Threads: those of `io`; `admit` and what it returns are called on the connection's strand, which
/// is
///          one of them. They must not block.
/// Owner:   the caller; `io` outlives it and runs until it has been stopped. `admit` is kept for as
///          long as a connection is.
class front_door {
public:
  using admit_fn = connection::admit_fn;

  front_door(io_pool& io, front_door_options options, admit_fn admit);
  ~front_door();

  /// Errors: io_failed, naming address and reason; invalid_request for unusable TLS files.
  result<void> start();
  std::uint16_t port() const;

  /// Once what is returned has been called, connections that are made see this certificate; those
  /// that are there go on. Nothing changes where the door speaks no TLS. Errors: invalid_request,
  /// naming the file. Any thread, after start(); what is returned goes before the door.
  result<std::function<void()>> next_certificate(const tls_text& text);

  /// Who connects from now on waits in the kernel's queue, for another process that listens there.
  void stop_accepting();

  /// Accepts nothing more, gives open requests up to `patience` to end, then cuts them. Not to be
  /// called on a thread of `io`.
  void stop(std::chrono::milliseconds patience);

private:
  class core;
  std::shared_ptr<core> core_;
};

} // namespace insula::http

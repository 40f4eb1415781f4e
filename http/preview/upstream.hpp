#pragma once

#include "http/sandboxes/services.hpp"
#include "http/transport/connection.hpp"
#include "http/transport/exchange.hpp"
#include "http/transport/watchdog.hpp"

#include <boost/asio/ip/tcp.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace insula::http::preview {

/// Why there is no answer of a server: what the client is told.
struct failure {
  int status = 502;
  std::string_view code;
  std::string why;
};

/// The sandbox that has it does not.
failure is_not_running(std::uint16_t port);

/// A connection to a server in a sandbox, on the strand of the client that it serves. As long as
/// it is open, the sandbox is in use.
class upstream final : public parked_upstream {
public:
  using socket_type = boost::asio::ip::tcp::socket;

  upstream(socket_type socket, std::string id, std::uint16_t port, std::shared_ptr<void> use);

  socket_type& socket() { return socket_; }
  socket_type& stream() { return socket_; }
  bool leads_to(const std::string& id, std::uint16_t port) const {
    return port_ == port && id_ == id;
  }
  /// The server may close what is idle whenever it likes.
  bool is_alive();

  /// Closes itself after a while, unless it is used again. Then the sandbox is left in peace.
  void rest();
  void wake() { idle_.disarm(); }
  /// There is no more for the server.
  void end_sending();
  void close();

private:
  socket_type socket_;
  const std::string id_;
  const std::uint16_t port_;
  std::shared_ptr<void> use_;
  watchdog idle_;
};

using connected_fn = std::function<void(std::shared_ptr<upstream> made, failure why)>;

/// Connects to what listens at a port in a sandbox, on its loopback too: by IPv4, else by IPv6.
/// A sandbox that stands still goes on; one that does not run is not started. `done` comes on the
/// strand, with null and the reason, or a connection.
void connect(std::shared_ptr<const services> with, strand_handle strand, std::string id,
             std::uint16_t port, request_context context, connected_fn done);

} // namespace insula::http::preview

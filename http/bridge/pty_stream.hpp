#pragma once

#include "http/bridge/api.hpp"
#include "http/web_socket.hpp"

#include <memory>
#include <string>

namespace insula::http::bridge {

/// One client that wants to be at a terminal.
struct pty_job {
  std::shared_ptr<const services> with;
  std::string id; ///< The sandbox's.
  open_terminal_request wanted;
  web_socket_offer offer;
  reply to;
};

/// Serves it: terminal, WebSocket, what was printed before, then both ways until one end goes.
void start_pty_stream(pty_job job);

} // namespace insula::http::bridge

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

/// WebSocket (RFC 6455), as the routes see it.
namespace insula::http {

class connection;
class request_head;
class strand_handle;

/// What a request's header says about becoming a WebSocket.
struct web_socket_offer {
  bool wanted = false;  ///< It names websocket.
  bool usable = false;  ///< All else that the handshake needs is there, too.
  std::string key = {}; ///< As it was sent.
};

web_socket_offer read_offer(const request_head& head);

struct web_socket_message {
  bool text = false; ///< Valid UTF-8 then.
  std::string bytes;
};

/// Why a WebSocket is closed; a public number.
enum class close_reason : std::uint16_t {
  normal = 1000,
  going_away = 1001,
  policy_violation = 1008,
  internal_error = 1011,
  try_again_later = 1013,
  taken_over = 4001 ///< Of OpenSandbox's clients.
};

/// A WebSocket to one client. Pings, fragments and the rules of the protocol are its own business.
/// Whoever drops it without close() cuts the connection.
///
/// Threads: any; the callbacks come on the connection's strand.
class web_socket {
public:
  virtual ~web_socket() = default;

  /// Asks for one message. While nobody asks, the client is not read from.
  virtual void receive(std::function<void(web_socket_message)> on_message) = 0;

  /// `taken`: the socket has taken it all, or (false) it has ended. Whoever sends much waits for
  /// that. Messages go out in order, each as one frame.
  virtual void send(web_socket_message message, std::function<void(bool)> taken = {}) = 0;

  /// After what has been sent.
  virtual void close(close_reason why, std::string_view words = {}) = 0;

  /// From now on the client may take nothing for so long, and is owed no answer to pings while
  /// something is on its way to it. Else one that takes nothing is cut after seconds
  /// (time_limits::write).
  virtual void wait_for_client(std::chrono::milliseconds at_most) = 0;

  /// Sent before a close that nobody but the server has asked for: it stops, or the client sends
  /// more than there is room for.
  virtual void set_last_words(web_socket_message words) = 0;

  /// Called once when it has ended, whoever has ended it.
  virtual void on_gone(std::function<void()> tell) = 0;
};

/// Speaks WebSocket on a connection whose request has been one for it. `fields`: lines for the
/// answer's header. On the connection's strand.
std::shared_ptr<web_socket> open_web_socket(std::shared_ptr<connection> client,
                                            const web_socket_offer& offer, std::string_view fields);

} // namespace insula::http

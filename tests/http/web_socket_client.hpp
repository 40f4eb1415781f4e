#pragma once

#include "tests/http/client.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace insula::test {

enum class frame_kind : std::uint8_t {
  continuation = 0,
  text = 1,
  binary = 2,
  close = 8,
  ping = 9,
  pong = 10
};

struct frame {
  frame_kind kind = frame_kind::close;
  std::string bytes;      ///< Of a close: its words.
  std::uint16_t code = 0; ///< Of a close; 1006: the connection ended without one.
  bool final = true;
};

/// What a client sends for one frame. One that is not masked breaks the protocol.
std::string encode_frame(frame_kind kind, std::string_view bytes, bool final = true,
                         bool masked = true);

/// A WebSocket client that sends exactly what it is told.
class web_socket_client {
public:
  /// `fields`: complete lines. `glued`: sent in one piece with the request.
  web_socket_client(std::uint16_t port, std::string_view target, std::string_view fields = {},
                    bool tls = false, std::string_view glued = {});

  const answer& head() const { return head_; }

  bool send(frame_kind kind, std::string_view bytes, bool final = true) {
    return raw().send(encode_frame(kind, bytes, final));
  }
  bool type(std::string_view bytes) { return send(frame_kind::binary, bytes); }
  bool tell(std::string_view json) { return send(frame_kind::text, json); }

  /// The next frame. Pings are answered, and not shown, unless `mute`; after two minutes of nothing
  /// else the connection counts as ended.
  frame next();
  /// Binary frames until `text` has come, together. Other frames end it.
  std::string until(std::string_view text);
  /// Everything up to the close: binary bytes, then text frames, a line each.
  struct rest {
    std::string printed;
    std::string told;
    std::uint16_t code = 0;
  };
  rest to_end();

  client& raw() { return client_; }
  bool mute = false; ///< Answers no ping.

private:
  frame read_frame();

  client client_;
  answer head_;
};

/// A request for a WebSocket, as a whole.
std::string upgrade_request(std::string_view target, std::string_view fields = {});

} // namespace insula::test

#pragma once

#include "benchmarks/load/http_client.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace insula::load {

/// What has arrived of one message, which may be less than all of it.
struct message_part {
  std::string_view bytes; ///< Valid until the next read.
  bool text = false;
  bool last = false; ///< The message ends here.
};

/// A connection of a client that has become a WebSocket. Belongs to the client's thread, and ends
/// before the client does. One may read while another one writes.
class web_socket {
public:
  struct opened {
    std::string failure; ///< One word of failure::, or "status 404". Empty: there is a socket.
    std::unique_ptr<web_socket> socket;
  };
  /// `target`: behind the base URL's prefix. The client's look_at_deadlines() keeps the time.
  static task<opened> open(http_client& by, std::string target, std::chrono::milliseconds patience);

  ~web_socket();
  web_socket(const web_socket&) = delete;
  web_socket& operator=(const web_socket&) = delete;

  /// None: it has ended, and failure() says why. Answers pings meanwhile.
  task<std::optional<message_part>> read();
  /// Whether it has been handed on.
  task<bool> write(std::string_view bytes, bool text);

  /// Something has to have been read by then, and this called again, or it ends with a timeout.
  void expect_by(clock::time_point when);
  void expect_nothing() { expect_by(clock::time_point::max()); }
  /// Ends it without a word to the server.
  void end();

  /// Why it has ended: one word of failure::, or "closed 1000". Empty: it has not.
  const std::string& failure() const { return failure_; }

private:
  struct parts;

  explicit web_socket(http_client& by);
  task<std::string> shake_hands(std::string target);
  void note(const error_code& why);

  http_client& by_;
  std::unique_ptr<parts> parts_;
  std::string failure_;
};

} // namespace insula::load

#pragma once

#include "base/unique_fd.hpp"
#include "benchmarks/response_reader.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace insula::bench {

/// A new connection to 127.0.0.1. Throws std::system_error.
unique_fd connect_to(std::uint16_t port);

/// A whole request as text, for a connection that is kept. `key` empty: without one. `fields`: more
/// lines of the head, each with its end.
std::string request_text(std::string_view method, std::string_view target, std::string_view key,
                         std::string_view body = {}, std::string_view fields = {});

/// A blocking HTTP client with one connection that it keeps. Throws std::runtime_error when there
/// is no answer within a minute, and when the connection breaks.
class http_client {
public:
  http_client(std::uint16_t port, std::string key);

  /// Connects where the connection has been closed meanwhile; call it before the clock runs.
  void ready();

  /// Sends, and hands out the answer's body as it comes. Answers the status.
  int ask(std::string_view method, std::string_view target, std::string_view body,
          response_reader::body_fn on_body, std::string_view fields = {});

  /// The same with the body as one string.
  int ask(std::string_view method, std::string_view target, std::string_view body,
          std::string& answer);

private:
  void send(std::string_view head, std::string_view body);
  void receive();

  std::uint16_t port_;
  std::string key_;
  unique_fd socket_;
  response_reader reader_;
  std::vector<char> buffer_;
};

} // namespace insula::bench

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

struct ssl_st;
struct ssl_ctx_st;

namespace insula::test {

struct answer {
  int status = 0;                            ///< 0: there was none.
  std::map<std::string, std::string> fields; ///< Names in lower case.
  std::string body;
  bool complete = false; ///< As long as announced, or with its last chunk.
};

/// A blocking HTTP client that sends exactly the bytes it is given. Gives up after ten seconds
/// without any.
class client {
public:
  /// `address`: its own, of IPv4.
  explicit client(std::uint16_t port, bool tls = false, const std::string& address = "127.0.0.1");
  ~client();
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  /// False when the other side has closed.
  bool send(std::string_view bytes);
  /// The next response; `head_only` for an answer to HEAD.
  answer receive(bool head_only = false);
  /// Bytes until there are `count` of them or no more.
  std::string read(std::size_t count);
  /// Bytes up to and including `mark`, or until the end.
  std::string read_until(std::string_view mark);
  /// The decoded next chunk of a chunked body; empty at its end, or when it was cut.
  std::string chunk();
  /// True if the other side closes before sending anything more.
  bool at_end();
  void close();
  int fd() const { return fd_; }
  /// The common name in the server's certificate. Empty: there is none.
  std::string shown() const;

private:
  bool fill();

  int fd_ = -1;
  ssl_ctx_st* context_ = nullptr;
  ssl_st* tls_ = nullptr;
  std::string buffer_;
};

/// The server's end of that connection, where the server is in this process. -1: there is none.
int other_end(int fd);

/// Whether there is room for bytes on the way to the other end.
bool takes_more(int fd);

/// A whole request, in a connection of its own.
answer ask(std::uint16_t port, std::string_view method, std::string_view target,
           std::string_view body = {}, std::string_view fields = {});

/// A request's text. `fields`: complete lines.
std::string request(std::string_view method, std::string_view target, std::string_view body = {},
                    std::string_view fields = {});

} // namespace insula::test

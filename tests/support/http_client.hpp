#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::test {

/// What a test waits for at most. Long, because whoever waits so long has failed; a machine may be
/// busy.
inline constexpr std::chrono::seconds http_patience{60};

struct http_answer {
  int status = 0;                            ///< 0: there was none.
  std::map<std::string, std::string> fields; ///< Names in lower case.
  std::string body;
  bool complete = false; ///< As long as announced, or with its last chunk.
};

/// One connection to 127.0.0.1 that sends exactly the bytes it is given and reads as far as it is
/// asked to. Throws std::runtime_error when it cannot connect and when nothing comes in time; knows
/// nothing of Catch2, so that threads can have one each.
class http_connection {
public:
  explicit http_connection(std::uint16_t port, std::chrono::milliseconds patience = http_patience);
  ~http_connection() { close(); }
  http_connection(const http_connection&) = delete;
  http_connection& operator=(const http_connection&) = delete;

  /// False: the other side takes no more.
  bool send(std::string_view bytes);
  /// The next answer, up to the end of its body. `bodiless`: an answer to HEAD.
  http_answer receive(bool bodiless = false);
  /// The next answer's head alone; its body comes from more().
  http_answer receive_head();
  /// The next bytes of the body whose head was read last; none at its end, and then whole() says
  /// whether that was its proper end.
  std::optional<std::string> more();
  bool whole() const { return whole_; }
  /// True if the other side closes without sending anything more.
  bool at_end();
  /// Says that nothing more will be sent.
  void finish_sending();
  void close();
  /// Goes without a goodbye: whatever is on its way meets a reset.
  void abandon();
  int fd() const { return fd_; }

private:
  enum class framing { none, length, chunks, until_close };

  bool fill();
  std::string take(std::size_t count);
  std::string line();

  int fd_ = -1;
  std::chrono::milliseconds patience_;
  std::string buffer_;
  std::size_t at_ = 0; ///< What of buffer_ has been taken.
  framing framing_ = framing::none;
  std::uint64_t left_ = 0; ///< Of the body with a length.
  bool whole_ = false;
};

/// A request's text. `fields`: complete lines.
std::string http_request(std::string_view method, std::string_view target,
                         std::string_view body = {}, std::string_view fields = {});

/// A whole request in a connection of its own.
http_answer http_ask(std::uint16_t port, std::string_view method, std::string_view target,
                     std::string_view body = {}, std::string_view fields = {});

// ---- Event streams of /exec

struct exec_event {
  std::string name;
  std::string data;    ///< Of stdout and stderr: decoded.
  std::string id = {}; ///< Empty: it has none.

  bool operator==(const exec_event&) const = default;
};

struct exec_outcome {
  int status = 0;
  std::string refusal; ///< The body, when there was no stream.
  std::vector<exec_event> events;
  std::string out, err;
  std::optional<int> exit_code;
  std::string error; ///< The error event's data.
  bool complete = false;
};

/// One exec, read event by event. Lines that begin with a colon are skipped, as every client does.
class exec_stream {
public:
  /// `body`: the request's JSON. Returns once the head is there.
  exec_stream(std::uint16_t port, std::string_view id, std::string_view body,
              std::string_view fields = {}, std::chrono::milliseconds patience = http_patience);

  const http_answer& head() const { return head_; }
  /// The next event; none at the stream's end. Throws on what is no event at all.
  std::optional<exec_event> next();
  /// Everything up to the end.
  exec_outcome rest();
  http_connection& connection() { return connection_; }

private:
  http_connection connection_;
  http_answer head_;
  std::string text_;
  std::size_t at_ = 0;
};

/// `{"argv":[…]` and what `more` adds (",\"timeout_ms\":5"), closed.
std::string exec_body(const std::vector<std::string>& argv, std::string_view more = {});
std::string json_string(std::string_view text);
std::string decode_base64(std::string_view text);

} // namespace insula::test

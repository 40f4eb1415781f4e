#pragma once

#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/services.hpp"
#include "http/transport/exchange.hpp"
#include "http/transport/web_socket.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// What one message of a terminal's client wants.
struct terminal_wish {
  std::string typed = {};
  std::optional<resize_terminal> size = {};
  std::optional<signal_terminal> signal = {};
  std::optional<web_socket_message> answer = {}; ///< What it is told at once.
};

/// What a client that has its WebSocket is told in place of a terminal.
struct terminal_refusal {
  std::vector<web_socket_message> messages;
  close_reason why = close_reason::normal;
};

/// How an API says what happens at a terminal. Stateless; any thread.
class terminal_words {
public:
  virtual ~terminal_words() = default;

  /// In place of a WebSocket.
  virtual response refusal(question_stage at, const error& why) const = 0;
  virtual web_socket_message printed(std::string bytes) const = 0;
  /// What it had printed before, from `offset` on.
  virtual web_socket_message replayed(std::uint64_t offset, std::string bytes) const = 0;
  /// That was all of it. None: it goes without saying.
  virtual std::optional<web_socket_message> ready() const = 0;
  virtual web_socket_message ended(const process_end& how) const = 0;
  virtual web_socket_message failed(std::string_view why) const = 0;
  /// Of the close after its end.
  virtual std::string_view farewell() const { return {}; }
  /// What is printed is told in whole characters.
  virtual bool whole_characters() const { return false; }
  virtual terminal_wish read(web_socket_message said) const = 0;
  /// What is said before any close but that of a terminal that has ended or failed. None: nothing.
  virtual std::optional<web_socket_message> last_words() const { return std::nullopt; }

  // ---- Where the client's first message says what is started

  /// Adds to `wanted` what it says. Errors: invalid_request: it is no such message.
  virtual result<void> read_start(web_socket_message said, open_terminal_request& wanted) const;
  /// `at`: none: no message that says what to start has come.
  virtual terminal_refusal not_started(std::optional<question_stage> at, const error& why) const;
};

/// One client that wants to be at a terminal.
struct terminal_job {
  std::shared_ptr<const services> with;
  std::string id; ///< The sandbox's.
  open_terminal_request wanted;
  web_socket_offer offer;
  std::shared_ptr<const terminal_words> words;
  reply to;
  bool starts_sandbox = true; ///< Else it has to be there.
  std::optional<std::uint64_t> since =
    {}; ///< What it has already. None: what is kept for everybody.
  /// The WebSocket comes first. Its first message, for which limits::start_message_patience is the
  /// time, says what is started; further ones wait until that runs.
  bool started_by_message = false;
};

/// Serves it: terminal, WebSocket, what was printed before, then both ways until one end goes.
void start_terminal_stream(terminal_job job);

} // namespace insula::http

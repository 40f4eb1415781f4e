#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// What is said about terminals and code, as JSON; read as execd_json.hpp says.
namespace insula::http::opensandbox {

/// Body of POST /pty, which may be empty. Errors: invalid_request.
struct pty_body {
  std::string cwd = {};
  std::string command = {};
};
result<pty_body> read_pty_body(std::string_view text);

/// {"session_id":"…","running":true,"output_offset":0}
std::string write_pty_status(std::string_view id, const terminal_status& state);

/// A text frame of a terminal's client.
struct pty_frame {
  enum class kind : std::uint8_t { ignored, input, resize, signal, ping, unknown };
  kind what = kind::ignored; ///< What is no such frame, or asks for what cannot be, is ignored.
  std::string data = {};     ///< Of an input; of an unknown one its type.
  resize_terminal size = {};
  int signal = 0;
};
pty_frame read_pty_frame(std::string_view text);

/// {"type":"connected","session_id":"…","mode":"pty"}
std::string write_pty_connected(std::string_view id);
/// {"type":"pong"}
std::string write_pty_pong();
/// {"type":"exit","exit_code":0}; of what a signal has ended it is -1.
std::string write_pty_exit(const process_end& end);
/// {"type":"error","error":"…","code":"…"}
std::string write_pty_error(std::string_view words, std::string_view code);

/// Body of POST /code. Errors: invalid_request.
struct code_body {
  std::string code;
  std::string context_id = {};
  std::string language = {};
};
result<code_body> read_code_body(std::string_view text);

/// Whether it can be a body of POST /code/context. Errors: invalid_request.
result<void> check_context_body(std::string_view text);

} // namespace insula::http::opensandbox

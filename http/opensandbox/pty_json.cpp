#include "http/opensandbox/pty_json.hpp"

#include "base/limits.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"

#include <array>
#include <csignal>
#include <limits>
#include <utility>

namespace insula::http::opensandbox {

namespace {

using json::value;
using json::wrong;

/// Of a path.
constexpr std::size_t longest_directory = 4096;

/// False: it is of another kind.
bool read_text(const value& object, std::string_view name, std::string& into) {
  const auto* found = json::find(object, name, json::as_go);
  if (found == nullptr)
    return true;
  if (!found->IsString())
    return false;
  into = json::string_of(*found);
  return true;
}

bool has_nul(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

/// 0: it is none that a client may send.
int signal_number(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, int>, 5> known{{{"SIGINT", SIGINT},
                                                                   {"SIGTERM", SIGTERM},
                                                                   {"SIGKILL", SIGKILL},
                                                                   {"SIGQUIT", SIGQUIT},
                                                                   {"SIGHUP", SIGHUP}}};
  for (const auto& [each, number] : known)
    if (each == name)
      return number;
  return 0;
}

/// 0: no terminal has that many.
std::uint16_t read_side(const value& frame, std::string_view name) {
  const auto* found = json::find(frame, name, json::as_go);
  const bool usable = found != nullptr && found->IsUint() &&
                      found->GetUint() <= std::numeric_limits<std::uint16_t>::max();
  return usable ? static_cast<std::uint16_t>(found->GetUint()) : std::uint16_t{0};
}

} // namespace

result<pty_body> read_pty_body(std::string_view text) {
  pty_body read;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return read;
  json::document document;
  if (!json::parse_lenient_object(text, document))
    return wrong("the body must be a JSON object");
  if (!read_text(document, "cwd", read.cwd) || !read_text(document, "command", read.command))
    return wrong("cwd and command must be strings");
  if (has_nul(read.cwd) || has_nul(read.command))
    return wrong("cwd and command cannot have a NUL");
  if (read.cwd.size() > longest_directory || read.command.size() > limits::inline_command_bytes)
    return wrong("cwd or command is too long");
  return read;
}

std::string write_pty_status(std::string_view id, const terminal_status& state) {
  json::writer out;
  out.begin_object().member("session_id", id).member("running", state.running);
  return out.member("output_offset", state.end_offset).end_object().str();
}

pty_frame read_pty_frame(std::string_view text) {
  using kind = pty_frame::kind;
  json::document frame;
  pty_frame read;
  std::string type, signal;
  if (!json::parse_lenient_object(text, frame) || !read_text(frame, "type", type) ||
      !read_text(frame, "data", read.data) || !read_text(frame, "signal", signal))
    return {};
  if (type == "stdin") {
    read.what = kind::input;
  } else if (type == "resize") {
    read.size = {read_side(frame, "cols"), read_side(frame, "rows")};
    read.what = read.size.columns > 0 && read.size.rows > 0 ? kind::resize : kind::ignored;
  } else if (type == "signal") {
    read.signal = signal_number(signal);
    read.what = read.signal != 0 ? kind::signal : kind::ignored;
  } else if (type == "ping") {
    read.what = kind::ping;
  } else {
    read.what = kind::unknown;
    read.data = std::move(type);
  }
  return read;
}

std::string write_pty_connected(std::string_view id) {
  json::writer out;
  out.begin_object().member("type", "connected").member("session_id", id);
  return out.member("mode", "pty").end_object().str();
}

std::string write_pty_pong() {
  return json::writer{}.begin_object().member("type", "pong").end_object().str();
}

std::string write_pty_exit(const process_end& end) {
  json::writer out;
  out.begin_object().member("type", "exit");
  return out.member("exit_code", end.signal != 0 ? -1 : end.exit_code).end_object().str();
}

std::string write_pty_error(std::string_view words, std::string_view code) {
  json::writer out;
  out.begin_object().member("type", "error").member("error", words);
  return out.member("code", code).end_object().str();
}

result<code_body> read_code_body(std::string_view text) {
  json::document document;
  if (!json::parse_lenient_object(text, document))
    return wrong("the body must be a JSON object");
  code_body read;
  if (!read_text(document, "code", read.code))
    return wrong("code must be a string");
  if (const auto* context = json::find(document, "context", json::as_go)) {
    if (!context->IsObject() || !read_text(*context, "id", read.context_id) ||
        !read_text(*context, "language", read.language))
      return wrong("context must be an object, with strings");
  }
  if (read.code.empty())
    return wrong("code is required");
  if (has_nul(read.code))
    return wrong("code cannot have a NUL");
  return read;
}

result<void> check_context_body(std::string_view text) {
  json::document document;
  std::string language, cwd;
  if (!json::parse_lenient_object(text, document) || !read_text(document, "language", language) ||
      !read_text(document, "cwd", cwd))
    return wrong("the body must be a JSON object, with strings");
  return {};
}

} // namespace insula::http::opensandbox

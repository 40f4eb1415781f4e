#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

/// What execd's clients and it say to each other, as JSON. Bodies are read as that server reads
/// them: whatever their type and whatever follows them, in any case of their keys, and null is an
/// empty object.
namespace insula::http::opensandbox {

/// Body of POST /command. Errors: invalid_request.
struct command_body {
  std::string command;
  std::string cwd = {};
  bool background = false;
  std::int64_t timeout_ms = 0; ///< 0: as long as it takes.
  std::optional<std::uint32_t> uid = {};
  std::optional<std::uint32_t> gid = {};
  std::map<std::string, std::string> envs = {};
};
result<command_body> read_command_body(std::string_view text);

/// Body of POST /session, which may be empty: the directory; empty: none. Errors: invalid_request.
result<std::string> read_session_cwd(std::string_view text);

/// {"session_id":"…"}
std::string write_session(std::string_view id);

/// {"cpu_count":2,"cpu_used_pct":2.5,"mem_total_mib":512.0,"mem_used_mib":1.5,"timestamp":…}
struct sandbox_metrics {
  double cpu_count = 0;
  double cpu_used_pct = 0; ///< Of all of them.
  double memory_total_mib = 0;
  double memory_used_mib = 0;
  std::int64_t now_ms = 0;
};
std::string write_metrics(const sandbox_metrics& of);

/// {"code":"…","message":"…"}
std::string write_failure(std::string_view code, std::string_view message);

/// How a command has ended, in the words of its clients.
struct command_outcome {
  std::optional<std::int32_t> exit_code; ///< None: it has none to speak of.
  std::string value;                     ///< evalue: a number, or words.
  std::string words;                     ///< Empty: it has ended well.
};
command_outcome outcome_of(const process_end& end);

/// Of GET /command/status/{id}.
std::string write_command_status(const std::string& id, const command_state& state);

// ---- Events: `data: {…}` and a blank line.

std::string write_text_event(std::string_view type, std::string_view text, std::int64_t now_ms);
/// The same of a line and its end, after what `to` has: most lines need no look at their letters.
void append_line_event(std::string& to, std::string_view type, std::string_view line,
                       std::string_view end, std::int64_t now_ms);
std::string write_complete_event(std::int64_t took_ms, std::int64_t now_ms);
std::string write_error_event(std::string_view value, std::string_view words, std::int64_t now_ms);

} // namespace insula::http::opensandbox

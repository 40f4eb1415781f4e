#include "http/opensandbox/execd_json.hpp"

#include "base/limits.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/text/iso_time.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace insula::http::opensandbox {

namespace {

using json::string_of;
using json::value;
using json::wrong;

std::optional<error> read_text(const value& body, std::string_view name, std::string& into) {
  const auto* found = json::find(body, name, json::as_go);
  if (found != nullptr && !found->IsString())
    return wrong(std::string{name} + " must be a string");
  if (found != nullptr)
    into = string_of(*found);
  return std::nullopt;
}

std::optional<error> read_id(const value& body, std::string_view name,
                             std::optional<std::uint32_t>& into) {
  const auto* found = json::find(body, name, json::as_go);
  if (found != nullptr && (!found->IsUint() || found->GetUint() > limits::largest_user_id))
    return wrong(std::string{name} + " must be a whole number from 0 to " +
                 std::to_string(limits::largest_user_id));
  if (found != nullptr)
    into = found->GetUint();
  return std::nullopt;
}

/// "killed", "segmentation fault".
std::string signal_name(int number) {
  const char* known = ::sigdescr_np(number);
  std::string name = known != nullptr ? known : std::to_string(number);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return name;
}

std::string event(const json::writer& out) {
  std::string all = "data: ";
  all += out.view();
  return all += "\n\n";
}

} // namespace

result<command_body> read_command_body(std::string_view body) {
  json::document document;
  if (!json::parse_lenient_object(body, document))
    return wrong(document.HasParseError() ? "the body is no JSON"
                                          : "the body must be a JSON object");
  command_body read;
  for (const auto& [name, into] : {std::pair{"command", &read.command}, {"cwd", &read.cwd}})
    if (auto failed = read_text(document, name, *into))
      return *failed;
  for (const auto& [name, into] : {std::pair{"uid", &read.uid}, {"gid", &read.gid}})
    if (auto failed = read_id(document, name, *into))
      return *failed;
  if (const auto* found = json::find(document, "background", json::as_go)) {
    if (!found->IsBool())
      return wrong("background must be true or false");
    read.background = found->GetBool();
  }
  if (const auto* found = json::find(document, "timeout", json::as_go)) {
    if (!found->IsInt64() || found->GetInt64() < 0)
      return wrong("timeout must be a whole number of milliseconds, 0 or more");
    read.timeout_ms = found->GetInt64();
  }
  if (const auto* found = json::find(document, "envs", json::as_go)) {
    if (!found->IsObject())
      return wrong("envs must be an object");
    for (const auto& each : found->GetObject()) {
      if (!each.value.IsString())
        return wrong("envs must have strings only");
      auto name = string_of(each.name), content = string_of(each.value);
      if (name.empty() || name.find('=') != std::string::npos ||
          name.find('\0') != std::string::npos || content.find('\0') != std::string::npos)
        return wrong("envs has a name or value that no environment can have");
      read.envs[std::move(name)] = std::move(content);
    }
  }
  if (read.command.empty())
    return wrong("command is required");
  if (read.command.find('\0') != std::string::npos || read.cwd.find('\0') != std::string::npos)
    return wrong("command and cwd cannot have a NUL");
  if (read.gid && !read.uid)
    return wrong("gid needs uid");
  return read;
}

result<std::string> read_session_cwd(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return std::string{};
  json::document document;
  if (!json::parse_lenient_object(body, document))
    return wrong(document.HasParseError() ? "the body is no JSON"
                                          : "the body must be a JSON object");
  std::string cwd;
  if (auto failed = read_text(document, "cwd", cwd))
    return *failed;
  return cwd;
}

std::string write_session(std::string_view id) {
  return R"({"session_id":")" + std::string{id} + R"("})";
}

std::string write_metrics(const sandbox_metrics& of) {
  json::writer out;
  out.begin_object();
  for (const auto& [name, number] : {std::pair{"cpu_count", of.cpu_count},
                                     {"cpu_used_pct", of.cpu_used_pct},
                                     {"mem_total_mib", of.memory_total_mib},
                                     {"mem_used_mib", of.memory_used_mib}})
    out.key(name).decimal(number, 2);
  out.member("timestamp", of.now_ms);
  out.end_object();
  return out.str();
}

std::string write_failure(std::string_view code, std::string_view message) {
  json::writer out;
  out.begin_object();
  out.member("code", code);
  if (!message.empty())
    out.member("message", message);
  out.end_object();
  return out.str();
}

command_outcome outcome_of(const process_end& end) {
  if (end.lost)
    return {std::nullopt, "the sandbox has ended", "the sandbox has ended"};
  if (end.timed_out) {
    const auto words = "command timed out after " + std::to_string(end.timeout_ms) + " ms";
    return {std::nullopt, words, words};
  }
  const std::string why = end.out_of_memory ? " (the sandbox is out of memory)" : "";
  if (end.signal != 0)
    return {-1, "-1", "signal: " + signal_name(end.signal) + why};
  if (end.exit_code == 0)
    return {0, "0", {}};
  const auto number = std::to_string(end.exit_code);
  return {end.exit_code, number, "exit status " + number + why};
}

std::string write_command_status(const std::string& id, const command_state& state) {
  json::writer out;
  const auto how = state.end ? outcome_of(*state.end) : command_outcome{};
  out.begin_object();
  out.member("id", id);
  out.member("content", state.text);
  out.member("running", !state.end);
  out.key("exit_code");
  how.exit_code ? out.integer(*how.exit_code) : out.null();
  out.member("error", how.words);
  out.member("started_at", iso_time(state.started_ms));
  out.key("finished_at");
  state.end ? out.text(iso_time(state.ended_ms)) : out.null();
  out.end_object();
  return out.str();
}

std::string write_text_event(std::string_view type, std::string_view what, std::int64_t now_ms) {
  json::writer out;
  out.begin_object();
  out.member("type", type);
  out.member("text", what);
  out.member("timestamp", now_ms);
  out.end_object();
  return event(out);
}

void append_line_event(std::string& to, std::string_view type, std::string_view line,
                       std::string_view end, std::int64_t now_ms) {
  const bool plain = std::all_of(
    line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  if (!plain) {
    to += write_text_event(type, std::string{line} + std::string{end}, now_ms);
    return;
  }
  (((to += R"(data: {"type":")") += type) += R"(","text":")") += line;
  for (const char c : end)
    to += c == '\n' ? "\\n" : "\\r";
  std::array<char, 24> digits{};
  const auto past = std::to_chars(digits.data(), digits.data() + digits.size(), now_ms).ptr;
  ((to += R"(","timestamp":)") += std::string_view{digits.data(), past}) += "}\n\n";
}

std::string write_complete_event(std::int64_t took_ms, std::int64_t now_ms) {
  json::writer out;
  out.begin_object();
  out.member("type", "execution_complete");
  out.member("execution_time", took_ms);
  out.member("timestamp", now_ms);
  out.end_object();
  return event(out);
}

std::string write_error_event(std::string_view what, std::string_view words, std::int64_t now_ms) {
  json::writer out;
  out.begin_object();
  out.member("type", "error");
  out.member("timestamp", now_ms);
  out.key("error");
  out.begin_object();
  out.member("ename", "CommandExecError");
  out.member("evalue", what);
  out.key("traceback");
  out.begin_array();
  out.text(words);
  out.end_array();
  out.end_object();
  out.end_object();
  return event(out);
}

} // namespace insula::http::opensandbox

#include "http/vercel/terminal_words.hpp"

#include "base/limits.hpp"
#include "http/vercel/members.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/words.hpp"

#include <limits>
#include <utility>

namespace insula::http::vercel {

namespace {

// As shells have them.
constexpr int code_cannot_run = 126, code_not_found = 127, code_failure = 1;

web_socket_message exit_frame(int code) {
  json::ascii_writer out;
  out.begin_object().member("type", "exit").member("code", code).end_object();
  return {true, out.str()};
}

bool has_type(const json::value& frame, std::string_view type) {
  const auto* is = given(frame, "type");
  return is != nullptr && is->IsString() && json::text_of(*is) == type;
}

/// A size that no terminal can have leaves things as they are.
std::optional<refusal> read_size(const json::value& frame, const char* name, std::uint16_t& into) {
  const auto* value = given(frame, name);
  if (value == nullptr)
    return std::nullopt;
  if (!value->IsNumber())
    return bad_request(std::string{name} + " must be a number");
  const auto size = whole_number(*value).value_or(0);
  if (size >= 1 && size <= std::numeric_limits<std::uint16_t>::max())
    into = static_cast<std::uint16_t>(size);
  return std::nullopt;
}

/// As ["NAME=value", …].
std::optional<refusal> read_variables(const json::value& frame,
                                      std::map<std::string, std::string>& into) {
  std::vector<std::string> lines;
  if (auto wrong = read_list(frame, "env", lines))
    return wrong;
  if (lines.size() > most_variables)
    return bad_request("env has too many variables");
  for (const auto& each : lines) {
    const auto end = each.find('=');
    if (end == 0 || end == std::string::npos)
      return bad_request("env must be an array of NAME=value");
    into[each.substr(0, end)] = each.substr(end + 1);
  }
  return std::nullopt;
}

std::optional<refusal> read_start_frame(const web_socket_message& said, std::string_view directory,
                                        open_terminal_request& into) {
  if (!said.text)
    return bad_request("the first frame must be text");
  if (said.bytes.size() > small_body_bytes)
    return bad_request("the first frame is too long");
  json::document frame;
  if (read_object(said.bytes, frame) || !has_type(frame, "start"))
    return bad_request("the first frame must be a JSON object of the type start");
  std::string command, cwd;
  std::vector<std::string> args;
  terminal_program wanted;
  for (auto wrong : {read_text(frame, "command", command), read_list(frame, "args", args),
                     read_variables(frame, wanted.env), read_text(frame, "cwd", cwd),
                     read_size(frame, "cols", into.columns), read_size(frame, "rows", into.rows)})
    if (wrong)
      return wrong;
  if (command.empty())
    return bad_request("command is required");
  if (args.size() > most_words)
    return bad_request("args: too many");
  wanted.argv.push_back(std::move(command));
  for (auto& each : args)
    wanted.argv.push_back(std::move(each));
  wanted.cwd = resolved(cwd, {}, directory);
  into.program = std::move(wanted);
  return std::nullopt;
}

/// Of a program that was not started: its code, and that of the close.
std::pair<int, close_reason> end_of(std::optional<question_stage> at, const error& why) {
  if (!at)
    return {code_failure, close_reason::policy_violation};
  switch (why.code) {
    case errc::launch_failed:
      return {is_program_missing(why) ? code_not_found : code_cannot_run, close_reason::normal};
    case errc::invalid_request: return {code_cannot_run, close_reason::normal};
    case errc::limit_reached:
    case errc::deadline_exceeded: return {code_failure, close_reason::try_again_later};
    case errc::internal: return {code_failure, close_reason::internal_error};
    default: return {code_failure, close_reason::going_away};
  }
}

class interactive final : public terminal_words {
public:
  explicit interactive(std::string_view directory)
      : directory_(directory) {}

  response refusal(question_stage, const error& why) const override {
    return why.code == errc::not_found ? unknown_session() : failure(why);
  }
  web_socket_message printed(std::string bytes) const override { return {false, std::move(bytes)}; }
  web_socket_message replayed(std::uint64_t, std::string bytes) const override {
    return {false, std::move(bytes)};
  }
  std::optional<web_socket_message> ready() const override { return std::nullopt; }
  web_socket_message ended(const process_end& how) const override {
    return exit_frame(exit_code_of(how));
  }
  web_socket_message failed(std::string_view) const override { return exit_frame(code_failure); }
  std::optional<web_socket_message> last_words() const override { return exit_frame(code_failure); }

  terminal_wish read(web_socket_message said) const override {
    if (!said.text)
      return {.typed = std::move(said.bytes)};
    json::document frame;
    resize_terminal size{0, 0};
    if (said.bytes.size() > small_body_bytes || read_object(said.bytes, frame) ||
        !has_type(frame, "resize") || read_size(frame, "cols", size.columns) ||
        read_size(frame, "rows", size.rows) || size.columns == 0 || size.rows == 0)
      return {};
    return {.size = size};
  }

  result<void> read_start(web_socket_message said, open_terminal_request& wanted) const override {
    if (auto wrong = read_start_frame(said, directory_, wanted))
      return error{errc::invalid_request, std::move(wrong->message)};
    return {};
  }

  terminal_refusal not_started(std::optional<question_stage> at, const error& why) const override {
    const auto [code, reason] = end_of(at, why);
    const auto sentence = at ? refusal_of(why).message : why.message;
    return {{{false, "insula: " + sentence + "\r\n"}, exit_frame(code)}, reason};
  }

private:
  const std::string_view directory_;
};

} // namespace

std::shared_ptr<const terminal_words> interactive_words(std::string_view directory) {
  return std::make_shared<interactive>(directory);
}

} // namespace insula::http::vercel

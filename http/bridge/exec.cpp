#include "base/limits.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/exec_words.hpp"
#include "http/bridge/idempotency.hpp"
#include "http/bridge/timeouts.hpp"
#include "http/bridge/workspace_path.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/command_line.hpp"
#include "http/sandboxes/session_id.hpp"

#include <algorithm>

namespace insula::http::bridge {

namespace {

bool has_nul(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

/// Empty: it can be started.
std::string why_not_startable(const std::string& cwd, const std::vector<std::string>& argv) {
  if (has_nul(cwd))
    return "cwd has a NUL character";
  const auto bad = std::find_if(argv.begin(), argv.end(), &has_nul);
  if (bad == argv.end())
    return {};
  return "argv[" + std::to_string(bad - argv.begin()) + "] has a NUL character";
}

/// What the header says.
struct exec_head {
  std::string id;
  std::string ends_with_shell;
  std::string input; ///< Insula-Stdin
  std::optional<std::string> last_event_id;
  idempotency_header idempotency; ///< And the session.
};

/// Input comes by the command's key, and to no session: its shell reads none.
result<void> read_input_wish(const exec_head& head, bool is_keyed, exec_request& into) {
  if (head.input.empty())
    return {};
  if (head.input != "open")
    return error{errc::invalid_request, "Insula-Stdin: expected open"};
  if (!is_keyed)
    return error{errc::invalid_request, "Insula-Stdin needs an Idempotency-Key"};
  if (!into.session.empty())
    return error{errc::invalid_request, "Insula-Stdin: a command in a session has no input"};
  into.input = true;
  return {};
}

/// Everything that can be wrong with the request itself, in the contract's order.
result<command_job> read_job(const services& with, const exec_head& head, std::string_view text,
                             bool shows_times) {
  const auto& session = head.idempotency.session;
  auto body = read_exec_body(text);
  if (!body)
    return body.reason();
  if (!session.empty() && !is_session_id(session))
    return error{errc::invalid_request, "Invalid session ID format"};
  auto cwd = resolve_in_workspace(body->cwd.value_or(""));
  if (!cwd)
    return error{errc::outside_workspace, "cwd must resolve to a location within /workspace"};
  command_job job;
  std::optional<stream_position> from;
  std::string timeout_text;
  const auto finished = [&] {
    job.words = exec_words(job.can_resume, std::move(from), std::move(timeout_text), shows_times);
    return std::move(job);
  };
  job.sandbox = head.id;
  job.unstartable = why_not_startable(*cwd, body->argv);
  job.command.command_line = command_line(body->argv);
  job.command.posix_line = posix_command_line(body->argv);
  job.command.session = session;
  if (with.default_session && session.empty() && head.input.empty())
    job.command.session = default_session;
  if (body->cwd || job.command.session.empty()) // Else it runs where the session is.
    job.command.cwd = std::move(*cwd);
  if (body->timeout_ms) {
    job.command.timeout_ms = whole_milliseconds(*body->timeout_ms);
    timeout_text = json::number_text(*body->timeout_ms);
  }
  if (const auto& wanted = head.ends_with_shell; !wanted.empty()) {
    if (wanted != "true" && wanted != "false")
      return error{errc::invalid_request, "Insula-End-With-Shell: expected true or false"};
    job.command.rules.with_its_shell = wanted == "true";
  }
  const auto keyed = has_idempotency_key(head.idempotency);
  if (!keyed)
    return keyed.reason();
  if (const auto wrong = read_input_wish(head, *keyed, job.command); !wrong)
    return wrong.reason();
  if (!*keyed)
    return finished();
  job.can_resume = true;
  job.command.idempotency =
    job.command.input
      ? idempotency_key_of(head.idempotency, std::string{text} + "\nInsula-Stdin: open")
      : idempotency_key_of(head.idempotency, text);
  if (head.last_event_id && !(from = stream_position::read(*head.last_event_id)))
    return error{errc::invalid_request, "Last-Event-ID is none of this stream's"};
  return finished();
}

void exec(shared_services with, const exec_head& head, std::string_view body, const reply& to) {
  auto job = read_job(*with, head, body, to->context().times != nullptr);
  if (!job)
    return to->respond(error_response(step::request, job.reason()));
  job->with = std::move(with);
  job->command.context = to->context();
  job->to = to;
  run_command(std::move(*job));
}

} // namespace

void add_exec_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/exec",
     access::key,
     body_use::buffered,
     limits::exec_body_bytes,
     [with](const matched_request& what) {
       return answered_by(
         [with, head = exec_head{what.id(), what.field("Insula-End-With-Shell"),
                                 what.field("Insula-Stdin"), what.field_if_any("Last-Event-ID"),
                                 idempotency_header_of(what)}](
           const std::string& body, const reply& to) { exec(with, head, body, to); });
     },
     {.id = "execCommand",
      .summary =
        "Run a command and stream its output as server-sent events: stdout and stderr carry "
        "base64, and one exit or error event ends the stream.",
      .parameters = {{"Session-Id", "header",
                      "Run in this session's shell, after what was asked of it before; it is made "
                      "if it is not there."},
                     {"Insula-End-With-Shell", "header",
                      "true: the stream ends when the command itself has ended. What that has left "
                      "in the background goes on, and what it prints from then on is nowhere. "
                      "Without it, as by the API's contract, the stream ends once nothing has its "
                      "output open, and the time limit ends the processes that hold it."},
                     {"Insula-Stdin", "header",
                      "open: the command's standard input is written by requests to "
                      "/v1/sandbox/{id}/exec/{key}/stdin, where key is the Idempotency-Key, which "
                      "it needs; in no session. Without it, as by the API's contract, the input "
                      "is at its end."},
                     idempotency_parameter,
                     {"Last-Event-ID", "header",
                      "With an Idempotency-Key: the id of the last event that has come. The stream "
                      "goes on behind it."}},
      .body_type = "application/json",
      .body_schema = "ExecRequest",
      .answers = {{"200", "The event stream.", "text/event-stream", ""},
                  {"400", "", "", "InvalidRequest"},
                  {"403", "cwd is outside the workspace.", "application/json", "ErrorResponse"},
                  {"409", "The Idempotency-Key was used for another request.", "application/json",
                   "ErrorResponse"},
                  {"410",
                   "What this Idempotency-Key stands for has run, and is not there any more.",
                   "application/json", "ErrorResponse"},
                  {"413", "The body is too large.", "application/json", "ErrorResponse"},
                  {"502", "The sandbox could not be started.", "application/json", "ErrorResponse"},
                  {"503", "No room for another sandbox.", "application/json", "ErrorResponse"}}}});
}

} // namespace insula::http::bridge

#include "http/bridge/api.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/idempotency.hpp"
#include "http/bridge/timeouts.hpp"
#include "http/bridge/workspace_path.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/session_id.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace insula::http::bridge {

namespace {

/// Taken: elsewhere it stands for no session at all.
constexpr std::string_view reserved = "__DISABLE_SESSION__";

/// `session-<ms>`, with a larger number than any before.
std::string new_session_id() {
  static std::atomic<std::int64_t> last = 0;
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count();
  auto before = last.load();
  while (!last.compare_exchange_weak(before, std::max(before + 1, now))) {
  }
  return "session-" + std::to_string(std::max(before + 1, now));
}

bool is_variable(const std::pair<const std::string, std::string>& each) {
  const auto& [name, value] = each;
  return !name.empty() && name.find('=') == std::string::npos &&
         name.find('\0') == std::string::npos && value.find('\0') == std::string::npos;
}

/// `usual`: its id, if the body names none; empty: a new one.
result<create_session_request> read_request(std::string_view text, std::string usual) {
  auto body = read_session_body(text);
  create_session_request wanted;
  wanted.id = body.id ? std::move(*body.id) : usual.empty() ? new_session_id() : std::move(usual);
  if (!is_session_id(wanted.id))
    return error{errc::invalid_request, "Invalid session ID format"};
  if (!std::all_of(body.env.begin(), body.env.end(), is_variable))
    return error{errc::invalid_request, "env must have names without = and no NUL"};
  if (body.cwd && body.cwd->find('\0') != std::string::npos)
    return error{errc::invalid_request, "cwd must not contain NUL"};
  wanted.env = std::move(body.env);
  if (body.cwd && !body.cwd->empty())
    wanted.cwd = body.cwd->front() == '/' ? *body.cwd : std::string{workspace} + '/' + *body.cwd;
  if (body.command_timeout_ms)
    wanted.command_timeout_ms = whole_milliseconds(*body.command_timeout_ms);
  return wanted;
}

template <class Message>
void ask(const services& with, const std::string& id, Message wanted, step during, const reply& to,
         response done) {
  question{with, id, std::move(wanted), to}
    .within(sandbox_patience, overdue(step::find_sandbox, not_ready))
    .or_else(failing(during))
    .template then<caf::ok_atom>([to, done = std::move(done)](caf::ok_atom) { to->respond(done); });
}

/// The same for the same request.
std::string session_id_of(const idempotency_key& request) {
  return "session-" + request.key.substr(0, 24);
}

void create(const services& with, const std::string& id, const idempotency_header& header,
            std::string_view body, const reply& to) {
  const auto keyed = has_idempotency_key(header);
  if (!keyed)
    return to->respond(error_response(step::create_session, keyed.reason()));
  idempotency_key whole;
  if (*keyed)
    whole = idempotency_key_of(header, body);
  auto wanted = read_request(body, *keyed ? session_id_of(whole) : std::string{});
  if (!wanted)
    return to->respond(error_response(step::create_session, wanted.reason()));
  if (wanted->id == reserved)
    return to->respond(error_response(
      step::create_session,
      {errc::launch_failed, "Session ID '" + wanted->id + "' is reserved for internal use"}));
  wanted->idempotency = std::move(whole);
  response done{200, write_id(wanted->id)};
  ask(with, id, std::move(*wanted), step::create_session, to, std::move(done));
}

void remove(const services& with, const request_path& what, const reply& to) {
  if (what["sid"] == default_session)
    return to->respond({502, json::write_error("Cannot delete default session 'default'. Use "
                                               "sandbox.destroy() to terminate the sandbox.",
                                               "session_error")});
  ask(with, what.id(), delete_session_request{what["sid"]}, step::delete_session, to, {204, {}});
}

} // namespace

void add_session_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/session",
     access::key,
     body_use::buffered,
     limits::session_body_bytes,
     [with](const matched_request& what) {
       return answered_by(
         [with, id = what.id(), header = idempotency_header_of(what)](
           const std::string& body, const reply& to) { create(*with, id, header, body, to); });
     },
     {.id = "createSession",
      .summary = "Make a session: a shell whose directory, variables and functions last from one "
                 "command to the next.",
      .parameters = {idempotency_parameter},
      .body_type = "application/json",
      .body_schema = "CreateSessionRequest",
      .answers = {
        {"200", "Its id.", "application/json", "CreateSessionResponse"},
        {"400", "", "", "InvalidRequest"},
        {"409", "The Idempotency-Key was used for another request.", "application/json",
         "ErrorResponse"},
        {"413", "The body is too large.", "application/json", "ErrorResponse"},
        {"502",
         "It could not be made, there is one of that id, or there are as many as there may be.",
         "application/json", "ErrorResponse"},
        {"503", "No room for another sandbox.", "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::del,
     "/v1/sandbox/:id/session/:sid",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       admission plan;
       if (is_session_id(what["sid"]))
         plan.answer = [with, path = request_path{what}](const std::string&, const reply& to) {
           remove(*with, path, to);
         };
       else
         plan.refusal = error_response(step::delete_session,
                                       {errc::invalid_request, "Invalid session ID format"});
       return plan;
     },
     {.id = "deleteSession",
      .summary = "End a session with all that it has started.",
      .parameters = {{"sid", "path", "The session's id.", true}},
      .answers = {{"204", "Gone."},
                  {"400", "", "", "InvalidRequest"},
                  {"502", "There is none of that id, or it is the default one.", "application/json",
                   "ErrorResponse"},
                  {"503", "No room for another sandbox.", "application/json", "ErrorResponse"}}}});
}

} // namespace insula::http::bridge

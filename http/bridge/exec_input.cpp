#include "base/limits.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/idempotency.hpp"
#include "http/json/json.hpp"
#include "http/json/writer.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/text/percent.hpp"

#include <charconv>
#include <chrono>

namespace insula::http::bridge {

namespace {

/// Longer than a piece waits for its command.
constexpr auto answer_patience = limits::input_patience + std::chrono::seconds{15};

struct piece_head {
  std::string id;
  std::string key; ///< Under which the command is kept.
  input_piece piece;
};

/// What the path and the query say.
result<piece_head> read_head(const matched_request& what) {
  piece_head head{what.id(), {}, {}};
  const idempotency_header named{percent_decode(what["key"]), {}};
  if (const auto known = has_idempotency_key(named); !known)
    return known.reason();
  head.key = idempotency_key_of(named, {}).key;
  const auto offset = form_value(what.head().query, "offset");
  if (!offset.empty()) {
    std::uint64_t at = 0;
    const auto* const end = offset.data() + offset.size();
    const auto [stopped, failed] = std::from_chars(offset.data(), end, at);
    if (failed != std::errc{} || stopped != end)
      return error{errc::invalid_request, "offset: expected a number of bytes"};
    head.piece.offset = at;
  }
  const auto close = form_value(what.head().query, "close");
  if (!close.empty() && close != "true" && close != "false")
    return error{errc::invalid_request, "close: expected true or false"};
  head.piece.closes = close == "true";
  head.piece.patience = limits::input_patience;
  return head;
}

/// With what was taken, from where its client goes on.
response failed(int status, std::string_view code, std::string_view message,
                const input_progress& now) {
  json::ascii_writer out;
  out.begin_object().member("error", message).member("code", code);
  out.member("taken", now.taken).end_object();
  return {status, out.str()};
}

response answer_to(const input_progress& now) {
  switch (now.state) {
    case input_state::taken: {
      json::ascii_writer out;
      out.begin_object().member("taken", now.taken).end_object();
      return {200, out.str()};
    }
    case input_state::slow:
      return failed(504, "stdin_timeout", "the command does not read its standard input", now);
    case input_state::ahead:
      return failed(409, "stdin_offset", "the offset is behind what has been taken", now);
    case input_state::over:
      return failed(410, "stdin_closed", "the command has no standard input, or reads it no more",
                    now);
    case input_state::crowded: break;
  }
  return failed(429, "stdin_busy", "too many pieces wait for this command", now);
}

response refusal(question_stage at, const error& why) {
  if (at == question_stage::ask && why.code == errc::not_found)
    return {404, json::write_error("no command runs under this Idempotency-Key", "not_found")};
  if (at == question_stage::ask && why.code == errc::limit_reached)
    return {429, json::write_error(why.message, "stdin_busy")};
  return error_response(step_of(at, step::exec), why);
}

void write(const shared_services& with, piece_head head, const std::string& body, const reply& to) {
  head.piece.bytes = body;
  question{*with, head.id, write_command_input{std::move(head.key), std::move(head.piece)}, to}
    .within(answer_patience, overdue(step::exec))
    .starts(false)
    .or_else(refusal)
    .then<input_progress>([to](const input_progress& now) { to->respond(answer_to(now)); });
}

} // namespace

void add_exec_input_route(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/exec/:key/stdin",
     access::key,
     body_use::buffered,
     limits::input_piece_bytes,
     [with](const matched_request& what) {
       auto head = read_head(what);
       if (!head)
         return refused(error_response(step::request, head.reason()));
       return answered_by(
         [with, head = std::move(*head)](const std::string& body, const reply& to) {
           write(with, head, body, to);
         });
     },
     {.id = "writeCommandInput",
      .summary =
        "Write to the standard input of a command that was started with Insula-Stdin. Answered "
        "once all of the body has been taken, which a new server does not change. Without a body "
        "and without close it is the question how much has been taken.",
      .parameters = {{"key", "path", "The command's Idempotency-Key, percent-encoded.", true,
                      "my-first"},
                     {"offset", "query",
                      "Where the body belongs in all of the input, in bytes: what was taken before "
                      "is not taken again. Without it, behind that."},
                     {"close", "query", "true: nothing follows, and the command reads the end."}},
      .body_type = "application/octet-stream",
      .answers =
        {{"200", "How much has been taken since the beginning.", "application/json",
          "InputResponse"},
         {"400", "", "", "InvalidRequest"},
         {"404", "No command runs under this key.", "application/json", "ErrorResponse"},
         {"409", "The offset is behind what has been taken.", "application/json", "InputFailure"},
         {"410", "The command has no standard input, or reads it no more.", "application/json",
          "InputFailure"},
         {"413", "The body is too large: it may have 512 KiB.", "application/json",
          "ErrorResponse"},
         {"429", "Too many pieces wait for this command.", "application/json", "InputFailure"},
         {"504", "The command has not read for 30 s: go on from what was taken by now.",
          "application/json", "InputFailure"}},
      .body_optional = true}});
}

} // namespace insula::http::bridge

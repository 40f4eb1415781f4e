#include "base/clock.hpp"
#include "http/sandboxes/terminal_stream.hpp"
#include "http/text/percent.hpp"
#include "http/vercel/members.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/terminal_tokens.hpp"
#include "http/vercel/terminal_words.hpp"

#include <utility>

namespace insula::http::vercel {

namespace {

// ---- A token

void invite(const session_call& call, const std::string& body, const reply& to) {
  json::document document;
  if (!body.empty())
    if (const auto wrong = read_object(body, document))
      return to->respond(failure(*wrong));
  ask_if_usable(call, to, [=](const run_list&) {
    json::ascii_writer out;
    out.begin_object().member("url", "ws" + call.url.substr(std::string_view{"http"}.size()));
    out.member("token",
               make_terminal_token(call.with->secret, call.session, system_clock{}.unix_ms()));
    out.end_object();
    to->respond({200, out.str()});
  });
}

// ---- Its use

response no_token() {
  return failure(refusal{401, "unauthorized",
                         "The token is not one for this session, has expired, or was used."});
}

std::optional<terminal_token> token_of(const shared_services& with, const matched_request& what) {
  const auto session = session_id::parse(what["session"]);
  return session ? read_terminal_token(with->secret, *session, form_value(what.query, "token"),
                                       system_clock{}.unix_ms())
                 : std::nullopt;
}

/// A session that has stopped leaves the token as it is: the client hears why, and asks again.
void connect(const session_call& call, const terminal_token& token, const web_socket_offer& offer,
             const reply& to) {
  ask_if_usable(call, to, [=](const run_list&) {
    using verdict = used_tokens::verdict;
    switch (call.with->used->use(call.sandbox(), token.name, token.expires_ms(),
                                 system_clock{}.unix_ms())) {
      case verdict::again: return to->respond(no_token());
      case verdict::full:
        return to->respond(
          failure(refusal{429, "rate_limited", "Too many terminals were opened just now."}));
      case verdict::first: break;
    }
    terminal_job job;
    job.with = call.with;
    job.id = call.sandbox();
    job.wanted.context = to->context();
    job.wanted.context.run = call.session.run;
    job.wanted.only_if_there = true; // It may go before the first message comes.
    job.offer = offer;
    job.words = interactive_words(call.directory());
    job.to = to;
    job.starts_sandbox = false;
    job.started_by_message = true;
    start_terminal_stream(std::move(job));
  });
}

admission admit_connection(const shared_services& with, const matched_request& what) {
  auto token = token_of(with, what);
  // One of before this server's start may have been used: this server cannot know.
  if (!token || token->issued_ms < with->started_ms)
    return refused(no_token());
  auto offer = read_offer(what.head());
  if (!offer.usable)
    return refused(failure(bad_request("A WebSocket handshake is needed here.")));
  return answered_by([call = session_call::of(with, what), token = std::move(*token),
                      offer = std::move(offer)](const std::string&, const reply& to) {
    connect(*call, token, offer, to);
  });
}

route connection_route(const shared_services& with, const std::string& path) {
  route made{
    verb::get,
    path,
    http::access::everybody,
    body_use::ignored,
    0,
    [with](const matched_request& what) { return admit_connection(with, what); },
    {.id = "connectVercelTerminal",
     .summary = "A terminal over a WebSocket, by the `url` and the `token` that "
                "`openVercelTerminal` has answered. The first frame, text, is {\"type\": "
                "\"start\", \"command\", \"args\", \"env\", \"cwd\", \"cols\", \"rows\"}. "
                "Binary frames are what is typed and printed, {\"type\": \"resize\", "
                "\"cols\", \"rows\"} changes the size, and {\"type\": \"exit\", "
                "\"code\"} is the last frame.",
     .parameters = {{"token", "query", "Good for one connection, for a minute.", true}},
     .answers = {{"101", "A WebSocket."},
                 {"400", "It is no WebSocket handshake.", "application/json", "VercelError"},
                 {"401", "The token is not one for this session, has expired, or was used.",
                  "application/json", "VercelError"},
                 {"404", "There is no such session.", "application/json", "VercelError"},
                 {"410", "The session is over.", "application/json", "VercelError"},
                 {"422", "The session is stopping.", "application/json", "VercelError"},
                 {"429", "Too many terminals were opened just now.", "application/json",
                  "VercelError"}},
     .tag = "Vercel Sandbox",
     .needs_disk = false}};
  made.objection = [with](const matched_request& what) {
    return token_of(with, what) ? std::nullopt : std::optional{no_token()};
  };
  concern_session(made);
  return made;
}

} // namespace

void add_terminal_routes(std::vector<route>& table, const shared_services& with,
                         const std::string& prefix) {
  auto document = listed_of_run("openVercelTerminal",
                                "A token for one terminal of the session, and the address of the "
                                "WebSocket that takes it.",
                                "VercelTerminal", "VercelNothing");
  document.body_optional = true;
  table.push_back(
    session_route(with, prefix, verb::post, "/interactive", invite, std::move(document)));
  table.push_back(connection_route(with, prefix + "/v2/sandboxes/sessions/:session/interactive"));
}

} // namespace insula::http::vercel

#include "http/opensandbox/execd_route.hpp"
#include "http/opensandbox/pty_json.hpp"
#include "http/opensandbox/pty_words.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/text/percent.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace insula::http::opensandbox {

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 30s;
constexpr std::string_view json_type = "application/json; charset=utf-8";

// The first byte of a binary frame.
constexpr char typed_mark = 0x00;
constexpr char printed_mark = 0x01;
constexpr char replay_mark = 0x03;

response refusal_of(const error& why) {
  switch (why.code) {
    case errc::not_found: return execd_failure(404, "CONTEXT_NOT_FOUND", why.message);
    case errc::already_exists: return execd_failure(409, "ALREADY_CONNECTED", why.message);
    case errc::limit_reached: return execd_failure(429, "RUNTIME_ERROR", why.message);
    default: return execd_failure(why);
  }
}

class execd_words final : public terminal_words {
public:
  explicit execd_words(std::string id)
      : id_(std::move(id)) {}

  response refusal(question_stage, const error& why) const override { return refusal_of(why); }
  web_socket_message printed(std::string bytes) const override {
    return {false, bytes.insert(0, 1, printed_mark)};
  }
  web_socket_message replayed(std::uint64_t offset, std::string bytes) const override {
    std::string head(1, replay_mark);
    for (int shift = 56; shift >= 0; shift -= 8)
      head += static_cast<char>(offset >> shift & 0xff);
    return {false, bytes.insert(0, head)};
  }
  std::optional<web_socket_message> ready() const override {
    return web_socket_message{true, write_pty_connected(id_)};
  }
  web_socket_message ended(const process_end& how) const override {
    return {true, write_pty_exit(how)};
  }
  web_socket_message failed(std::string_view why) const override {
    return {true, write_pty_error(why, "RUNTIME_ERROR")};
  }
  std::string_view farewell() const override { return "process exited"; }

  terminal_wish read(web_socket_message said) const override {
    if (!said.text) {
      if (said.bytes.empty() || said.bytes.front() != typed_mark)
        return {};
      return {.typed = said.bytes.erase(0, 1)};
    }
    using kind = pty_frame::kind;
    auto frame = read_pty_frame(said.bytes);
    switch (frame.what) {
      case kind::ignored: return {};
      case kind::input: return {.typed = std::move(frame.data)};
      case kind::resize: return {.size = frame.size};
      case kind::signal: return {.signal = signal_terminal{frame.signal}};
      case kind::ping: return {.answer = web_socket_message{true, write_pty_pong()}};
      case kind::unknown: break;
    }
    // All of a frame may be its type.
    const auto type = frame.data.substr(0, longest_told_type);
    return {.answer = web_socket_message{
              true, write_pty_error("unknown frame type \"" + type + "\"", "INVALID_FRAME")}};
  }

private:
  static constexpr std::size_t longest_told_type = 64;

  const std::string id_;
};

/// As it can have been made here.
bool is_pty_id(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

response no_such(const std::string& id) {
  return refusal_of({errc::not_found, "there is no terminal " + id});
}

/// `answered` comes on a CAF worker.
template <class Message, class Answer>
void ask(const execd_target& target, const execd_call& what, Message wanted, const reply& to,
         std::function<void(const Answer&)> answered) {
  question{*target.with, target.id(what), std::move(wanted), to}
    .within(patience, no_answer_in_time())
    .starts(false)
    .or_else(refusal_of)
    .template then<Answer>(std::move(answered));
}

void make(const execd_target& target, const execd_call& what, const std::string& body,
          const reply& to) {
  auto wanted = read_pty_body(body);
  if (!wanted)
    return to->respond(execd_failure(wanted.reason()));
  const auto id = new_command_id();
  define_terminal defined{id, std::move(wanted->command), std::move(wanted->cwd), {}};
  question{*target.with, target.id(what), std::move(defined), to}
    .within(sandbox_patience,
            execd_failure(500, "RUNTIME_ERROR", "the sandbox was not ready in time"))
    .starts(target.makes_sandbox())
    .or_else(execd_failure)
    .then<caf::ok_atom>([to, id](caf::ok_atom) {
      to->respond({201, write_session(id), json_type});
    });
}

void tell(const execd_target& target, const execd_call& what, const std::string&, const reply& to) {
  if (!is_pty_id(what["sid"]))
    return to->respond(no_such(what["sid"]));
  ask<find_terminal, terminal_status>(
    target, what, {what["sid"], {}}, to, [to, id = what["sid"]](const terminal_status& found) {
      to->respond(found.known ? response{200, write_pty_status(id, found), json_type}
                              : no_such(id));
    });
}

void end(const execd_target& target, const execd_call& what, const std::string&, const reply& to) {
  if (!is_pty_id(what["sid"]))
    return to->respond(no_such(what["sid"]));
  ask<forget_terminal, caf::ok_atom>(target, what, {what["sid"], {}}, to, [to](caf::ok_atom) {
    to->respond({200, {}, {}});
  });
}

/// What is no number, or none of an offset, is 0.
std::uint64_t read_offset(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
  return why == std::errc{} && end == text.data() + text.size() ? value : 0;
}

void open(const execd_target& target, const execd_call& what, const std::string&, const reply& to) {
  if (!is_pty_id(what["sid"]))
    return to->respond(no_such(what["sid"]));
  if (form_value(what.query, "pty") == "0")
    return to->respond(execd_failure(
      400, "NOT_SUPPORTED", "pty=0 is not supported: a command has no standard input here"));
  if (!what.offer.usable) // Whoever asks for what is not there hears that first.
    return ask<find_terminal, terminal_status>(
      target, what, {what["sid"], {}}, to, [to, id = what["sid"]](const terminal_status& found) {
        to->respond(found.known ? execd_failure(400, "INVALID_REQUEST_BODY",
                                                "a WebSocket handshake is needed here")
                                : no_such(id));
      });
  open_terminal_request wanted;
  wanted.defined = what["sid"];
  wanted.takes_over = form_value(what.query, "takeover") == "1";
  wanted.context = to->context();
  terminal_job job;
  job.with = target.with;
  job.id = target.id(what);
  job.wanted = std::move(wanted);
  job.offer = what.offer;
  job.words = execd_terminal_words(what["sid"]);
  job.to = to;
  job.starts_sandbox = false;
  job.since = read_offset(form_value(what.query, "since"));
  start_terminal_stream(std::move(job));
}

} // namespace

std::shared_ptr<const terminal_words> execd_terminal_words(std::string id) {
  return std::make_shared<execd_words>(std::move(id));
}

void add_pty_routes(std::vector<route>& table, const execd_target& target,
                    const std::string& prefix) {
  const auto none = body_use::ignored;
  const parameter terminal{"sid", "path", "The terminal's id.", true};
  const auto add = [&](verb method, std::string_view path, body_use body, execd_answer answer,
                       operation document) {
    document.tag = "OpenSandbox: terminals";
    table.push_back(execd_route(method, prefix + std::string{path}, target, body, std::move(answer),
                                std::move(document)));
  };
  add(verb::post, "/pty", body_use::buffered, make,
      {.id = "createExecdPty",
       .summary = "A terminal. Its shell, or its command, starts with its first client.",
       .body_type = "application/json",
       .body_schema = "ExecdPtyRequest",
       .answers = {{"201", "Its id.", "application/json", "ExecdSession"}, bad_answer},
       .body_optional = true});
  add(verb::get, "/pty/:sid", none, tell,
      {.id = "getExecdPty",
       .summary = "Whether something runs in a terminal, and how much it has printed.",
       .parameters = {terminal},
       .answers = {{"200", "How it is.", "application/json", "ExecdPty"}}});
  add(verb::del, "/pty/:sid", none, end,
      {.id = "deleteExecdPty",
       .summary = "End a terminal and what runs in it.",
       .parameters = {terminal},
       .answers = {done_answer}});
  add(verb::get, "/pty/:sid/ws", none, open,
      {.id = "openExecdPty",
       .summary = "Connect to a terminal by a WebSocket. It has one client at a time.",
       .parameters = {terminal,
                      {"since",
                       "query",
                       "What has been printed from this offset on comes first.",
                       false,
                       {},
                       R"({"type":"integer","minimum":0})"},
                      {"takeover", "query", "1: the client that is there has to go."}},
       .answers = {{"101", "The terminal."},
                   bad_answer,
                   {"409", "Another client is there.", "application/json", "OpenSandboxError"},
                   {"429", "There are as many terminals as there may be, and none gives way.",
                    "application/json", "OpenSandboxError"}}});
}

} // namespace insula::http::opensandbox

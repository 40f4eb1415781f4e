#include "base/base64.hpp"
#include "base/clock.hpp"
#include "base/hex.hpp"
#include "base/limits.hpp"
#include "http/sandboxes/command_stream.hpp"
#include "http/text/hmac.hpp"
#include "http/vercel/members.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/words.hpp"

#include <caf/stateful_actor.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace insula::http::vercel {

namespace {

using namespace std::chrono_literals;
using taken_atom = caf::atom_constant<caf::atom("taken")>;
using gone_atom = caf::atom_constant<caf::atom("gone")>;

constexpr std::uint32_t read_bytes = 512 * 1024;
/// Clients give up after 300 s without a header, and take white space in front of JSON.
constexpr auto keep_alive_every = 30s;
constexpr std::int64_t shortest_timeout_ms = 100;

response unknown_command() {
  return failure(refusal{404, "not_found", "Command not found."});
}

// ---- A command to be run

struct wanted_command {
  std::string program;
  std::vector<std::string> args;
  std::string cwd;
  std::map<std::string, std::string> env;
  bool sudo = false, waits = false, logs = false, input = false;
  std::optional<std::int64_t> timeout_ms;
};

std::optional<refusal> read_command(std::string_view body, wanted_command& into) {
  json::document document;
  if (auto wrong = read_object(body, document))
    return wrong;
  for (auto wrong :
       {read_text(document, "command", into.program), read_list(document, "args", into.args),
        read_text(document, "cwd", into.cwd), read_flag(document, "sudo", into.sudo),
        read_flag(document, "wait", into.waits), read_flag(document, "logs", into.logs),
        read_flag(document, "attachStdin", into.input), read_environment(document, into.env)})
    if (wrong)
      return wrong;
  if (into.program.empty())
    return bad_request("command is required");
  if (into.args.size() > most_words)
    return bad_request("args: too many");
  if (const auto* timeout = given(document, "timeout")) {
    into.timeout_ms = whole_number(*timeout);
    if (into.timeout_ms.value_or(0) < shortest_timeout_ms)
      return bad_request("timeout must be at least 100 milliseconds");
  }
  return std::nullopt;
}

exec_request request_of(const session_call& call, wanted_command& wanted, const command_view& view,
                        const std::string& body) {
  exec_request command;
  command.argv.push_back(std::move(wanted.program));
  for (auto& each : wanted.args)
    command.argv.push_back(std::move(each));
  command.cwd = view.cwd;
  command.env = std::move(wanted.env);
  if (wanted.sudo) {
    command.user = command_user{0, 0};
    command.env.try_emplace("HOME", "/root");
    command.env.try_emplace("USER", "root");
    command.env.try_emplace("LOGNAME", "root");
  }
  command.timeout_ms = wanted.timeout_ms;
  command.rules = {true, true};
  command.only_if_there = true;
  command.input = wanted.input;
  const auto digest = hmac_sha256(call.session.text(), body);
  command.idempotency = {
    key_of_command(view.id),
    to_hex({reinterpret_cast<const unsigned char*>(digest.data()), digest.size()}), true};
  command.remembered = remembered_command{true, text_of(view)};
  command.context.run = call.session.run;
  return command;
}

std::string command_json(const command_view& view) {
  json::ascii_writer out;
  out.begin_object().key("command");
  write_command(out, view);
  out.end_object();
  return out.str();
}

/// Its words may be large: they are there twice, and no more.
void start(const session_call& call, const std::shared_ptr<exec_request>& command,
           const command_view& view, const reply& to) {
  sandbox_question<exec_request, process_actor> asked{
    call.with->directory, call.sandbox(), *command,
    [to, view](const process_actor&) {
      to->respond({200, command_json(view)});
    },
    [to, call, command](question_stage, const error& why) {
      if (why.code != errc::request_known)
        return to->respond(not_started(why));
      const auto first = read_command_view(why.message);
      command->idempotency.key = key_of_command(first.id);
      start(call, command, first, to);
    }};
  asked.starts_it = false;
  asked.may_repeat = false;
  ask_sandbox(*call.with, std::move(asked));
}

void run(const session_call& call, const std::string& body, const reply& to) {
  wanted_command wanted;
  if (const auto wrong = read_command(body, wanted))
    return to->respond(failure(*wrong));
  command_view view{new_command_id(),    wanted.program,
                    wanted.args,         resolved(wanted.cwd, {}, call.directory()),
                    call.session.text(), system_clock{}.unix_ms()};
  auto command = request_of(call, wanted, view, body);
  const auto run_number = command.context.run;
  command.context = to->context();
  command.context.run = run_number;
  if (wanted.waits) {
    command_job job;
    job.with = call.with;
    job.sandbox = call.sandbox();
    job.starts_sandbox = false;
    job.command = std::move(command);
    job.words = waited_command_words(std::move(view), wanted.logs);
    job.to = to;
    return run_command(std::move(job));
  }
  to->answer_within(sandbox_patience, late_answer());
  start(call, std::make_shared<exec_request>(std::move(command)), view, to);
}

// ---- A command that has been run

/// As its record has it; none: it is not one of this run's.
std::optional<command_view> view_of(const session_call& call, const command_state& of) {
  if (!of.known)
    return std::nullopt;
  auto view = read_command_view(of.text);
  if (view.session != call.session.text())
    return std::nullopt;
  if (of.end && !of.end->lost) {
    view.exit_code = exit_code_of(*of.end);
    view.duration_ms = std::max<std::int64_t>(of.ended_ms - view.started_ms, 0);
  }
  return view;
}

response commands_elsewhere() {
  return failure(refusal{410, "gone",
                         "The session was on another node, and its commands are not known any "
                         "more."});
}

/// `found` is called for a command of this run's.
void find(const session_call& call, const reply& to,
          std::function<void(const command_view&, const command_status&)> found,
          bool opens_log = false) {
  const auto key = key_of_command(call.command);
  if (key.empty())
    return to->respond(unknown_command());
  ask_session<command_status>(call, find_command{key, {}, call.session.run, opens_log}, to,
                              [=](const command_status& status) {
                                if (status.elsewhere)
                                  return to->respond(commands_elsewhere());
                                const auto view = view_of(call, status);
                                view ? found(*view, status) : to->respond(unknown_command());
                              });
}

/// In the order in which the client sees that they were started.
std::string commands_json(const session_call& call, const command_list& all) {
  std::vector<command_view> views;
  for (const auto& each : all.commands)
    if (auto view = view_of(call, each))
      views.push_back(std::move(*view));
  std::stable_sort(views.begin(), views.end(),
                   [](const auto& a, const auto& b) { return a.started_ms > b.started_ms; });
  json::ascii_writer out;
  out.begin_object().key("commands").begin_array();
  for (const auto& each : views)
    write_command(out, each);
  out.end_array().end_object();
  return out.str();
}

void list_commands(const session_call& call, const std::string&, const reply& to) {
  ask_session<command_list>(
    call, find_commands{call.session.run}, to, [=](const command_list& all) {
      to->respond(all.elsewhere ? commands_elsewhere() : response{200, commands_json(call, all)});
    });
}

// ---- Its log

/// A log on its way to a reader: while the client takes one piece, the next one is read, and no
/// more than that.
struct following {
  process_actor process;
  command_view view;
  std::shared_ptr<answer_stream> stream;
  log_lines lines;
  std::uint64_t offset = 0;
  bool tells_log = true; ///< Else its end alone, as one JSON text.
  bool writing = false;  ///< The client has not taken the last piece.
  bool asking = false;   ///< For the next one.
  std::string held;      ///< The piece to be written next.
};
struct following_state {
  static inline const char* name = "vercel_log";
  std::shared_ptr<following> of;
  std::optional<std::string> last; ///< What is to follow `held`, which is all then.
};
using follower = caf::stateful_actor<following_state>*;

void read_on(follower self);

/// Once what is on its way has been taken: it would be overtaken.
void finish(follower self, std::string bytes) {
  auto& of = *self->state.of;
  self->state.last = std::move(bytes);
  if (of.writing)
    return;
  of.stream->finish(std::exchange(of.held, {}) + *self->state.last);
  self->quit();
}

void write_held(follower self) {
  auto& of = *self->state.of;
  of.writing = true;
  of.stream->write(
    std::exchange(of.held, {}), [me = caf::actor_cast<caf::actor>(self)](bool taken) {
      taken ? caf::anon_send(me, taken_atom::value) : caf::anon_send(me, gone_atom::value);
    });
}

/// There is something new to be written, or nothing has come of what was read.
void go_on(follower self) {
  auto& of = *self->state.of;
  if (!of.writing && !of.held.empty())
    write_held(self);
  if (of.held.empty() && !of.asking)
    read_on(self);
}

void taken(follower self) {
  self->state.of->writing = false;
  if (self->state.last)
    return finish(self, std::move(*self->state.last));
  go_on(self);
}

void tell_end(follower self, const process_end& end) {
  auto& of = *self->state.of;
  if (!of.tells_log) {
    if (end.lost)
      return finish(self, failure(error{errc::run_over, {}}).body);
    of.view.exit_code = exit_code_of(end);
    of.view.duration_ms = std::max<std::int64_t>(system_clock{}.unix_ms() - of.view.started_ms, 0);
    return finish(self, command_json(of.view));
  }
  std::string bytes;
  of.lines.finish(bytes);
  if (end.lost)
    append_error_line(bytes, {errc::run_over, {}});
  finish(self, std::move(bytes));
}

void read_on(follower self) {
  auto& of = *self->state.of;
  of.asking = true;
  read_output question;
  question.offset = of.offset;
  question.max_bytes = read_bytes;
  self->request(of.process, caf::infinite, question)
    .then(
      [=](const output_chunk& chunk) {
        auto& st = *self->state.of;
        st.asking = false;
        if (st.tells_log)
          st.lines.output(st.held, chunk.frames);
        st.offset = chunk.next_offset;
        if (chunk.ended)
          return tell_end(self, *chunk.ended);
        go_on(self);
      },
      [=](const caf::error& why) {
        std::string bytes;
        append_error_line(bytes, from_caf(why));
        finish(self, self->state.of->tells_log ? std::move(bytes) : failure(from_caf(why)).body);
      });
}

caf::behavior follow(follower self, std::shared_ptr<following> of) {
  self->state.of = std::move(of);
  self->state.of->stream->on_gone(
    [me = caf::actor_cast<caf::actor>(self)] { caf::anon_send(me, gone_atom::value); });
  read_on(self);
  return {[=](taken_atom) { taken(self); }, [=](gone_atom) { self->quit(); }};
}

void tell_log(const session_call& call, const std::string&, const reply& to) {
  find(
    call, to,
    [=](const command_view& view, const command_status& status) {
      if (status.log_gone)
        return to->respond(
          failure(refusal{410, "gone", "The command's log is not kept any more."}));
      const stream_head head{lines_type, {{"Cache-Control", "no-cache"}}, true};
      if (!status.process) { // It has ended, and has never been asked for its output.
        if (auto stream = to->stream(head))
          stream->finish({});
        return;
      }
      auto stream = to->stream(head);
      if (!stream)
        return;
      call.with->system->spawn(
        follow, std::make_shared<following>(
                  following{status.process, view, std::move(stream), {}, status.begin_offset}));
    },
    true);
}

void look(const session_call& call, const std::string&, const reply& to) {
  find(call, to, [=](const command_view& view, const command_status& status) {
    if (status.end && status.end->lost && call.waits)
      return to->respond(failure(error{errc::run_over, {}}));
    if (!call.waits || view.exit_code || !status.process)
      return to->respond({200, command_json(view)});
    auto stream = to->stream({"application/json", {}, true});
    if (!stream)
      return;
    stream->fill_silence("\n", keep_alive_every);
    call.with->system->spawn(
      follow, std::make_shared<following>(
                following{status.process, view, std::move(stream), {}, status.end_offset, false}));
  });
}

// ---- Its standard input

/// Longer than a piece waits for the command.
constexpr auto input_answer_patience = limits::input_patience + 15s;

std::optional<refusal> read_input(std::string_view body, input_piece& into) {
  json::document document;
  std::string data;
  if (auto wrong = read_object(body, document))
    return wrong;
  for (auto wrong : {read_text(document, "data", data), read_flag(document, "close", into.closes)})
    if (wrong)
      return wrong;
  auto bytes = from_base64(data);
  if (!bytes)
    return bad_request("data must be base64");
  if (bytes->size() > limits::input_piece_bytes)
    return refusal{413, "payload_too_large",
                   "data may have " + std::to_string(limits::input_piece_bytes) + " bytes."};
  into.bytes = std::move(*bytes);
  if (const auto* offset = given(document, "offset")) {
    const auto at = whole_number(*offset);
    if (at.value_or(-1) < 0)
      return bad_request("offset must be a whole number of bytes");
    into.offset = static_cast<std::uint64_t>(*at);
  }
  return std::nullopt;
}

/// With what was taken, from where its client goes on.
response input_failure(const refusal& why, std::uint64_t taken) {
  json::ascii_writer out;
  out.begin_object().key("error").begin_object();
  out.member("code", why.code).member("message", why.message).member("bytesWritten", taken);
  out.end_object().end_object();
  return {why.status, out.str()};
}

/// The command may have had nothing of it.
response too_much_waits() {
  auto answer = failure(refusal{429, "rate_limited", "Too much input waits for this command."});
  answer.fields.push_back({"Retry-After", "1"});
  return answer;
}

response input_answer(const command_view& view, const input_progress& now) {
  switch (now.state) {
    case input_state::taken: {
      json::ascii_writer out;
      out.begin_object().key("command");
      write_command(out, view);
      out.member("bytesWritten", now.taken).end_object();
      return {200, out.str()};
    }
    case input_state::slow:
      return input_failure({504, "command_stdin_timeout", "The command does not read its input."},
                           now.taken);
    case input_state::ahead:
      return input_failure({409, "conflict", "The offset is behind what the command has."},
                           now.taken);
    case input_state::over: break;
    case input_state::crowded: return too_much_waits();
  }
  return input_failure(
    {400, "command_stdin_unavailable", "The command has no standard input, or reads it no more."},
    now.taken);
}

void write_input(const session_call& call, const std::string& body, const reply& to) {
  input_piece piece;
  if (const auto wrong = read_input(body, piece))
    return to->respond(failure(*wrong));
  piece.patience = limits::input_patience;
  find(call, to,
       [call, to, piece = std::move(piece)](const command_view& view, const command_status&) {
         question{*call.with, call.sandbox(),
                  write_command_input{key_of_command(call.command), piece}, to}
           .within(input_answer_patience, late_answer())
           .starts(false)
           .or_else([](const error& why) {
             return why.code == errc::limit_reached ? too_much_waits() : failure(why);
           })
           .then<input_progress>(
             [to, view](const input_progress& now) { to->respond(input_answer(view, now)); });
       });
}

void kill(const session_call& call, const std::string& body, const reply& to) {
  int number = SIGTERM;
  json::document document;
  if (!body.empty()) {
    if (const auto wrong = read_object(body, document))
      return to->respond(failure(*wrong));
    if (const auto* signal = given(document, "signal")) {
      if (!signal->IsInt() || signal->GetInt() < 1 || signal->GetInt() > SIGRTMAX)
        return to->respond(failure(bad_request("signal must be a number from 1 to 64")));
      number = signal->GetInt();
    }
  }
  find(call, to, [=](const command_view& view, const command_status& status) {
    if (status.end)
      return to->respond({200, command_json(view)});
    interrupt_command order{key_of_command(call.command), {}, number};
    sandbox_question<interrupt_command, caf::ok_atom> asked{
      call.with->directory, call.sandbox(), order,
      [=](caf::ok_atom) {
        to->respond({200, command_json(view)});
      },
      [=](question_stage, const error& why) {
        // It has ended meanwhile.
        to->respond(why.code == errc::invalid_request || is_run_end(why.code)
                      ? response{200, command_json(view)}
                      : failure(why));
      }};
    asked.starts_it = false;
    ask_sandbox(*call.with, std::move(asked));
  });
}

operation described_input() {
  auto made = listed_of_run("writeVercelCommandInput",
                            "Writes to its standard input. Answered once the command's pipe, or "
                            "what goes on to it, has all of the data.",
                            "VercelInputAnswer", "VercelInput");
  made.answers.push_back(
    {"409", "The offset is behind what the command has.", "application/json", "VercelError"});
  made.answers.push_back({"413", "The data is too long.", "application/json", "VercelError"});
  made.answers.push_back({"504",
                          "The command does not read: error.bytesWritten is what was taken by now.",
                          "application/json", "VercelError"});
  return made;
}

} // namespace

void add_command_routes(std::vector<route>& table, const shared_services& with,
                        const std::string& prefix) {
  const auto add = [&](verb method, const std::string& rest, session_handler handle,
                       operation document) {
    table.push_back(session_route(with, prefix, method, rest, handle, std::move(document)));
  };
  add(verb::post, "/cmd", run,
      listed_of_run("runVercelCommand",
                    "Runs a program. With `wait` the answer is application/x-ndjson: the command, "
                    "with `logs` its output, and the command with its end.",
                    "VercelCommandAnswer", "VercelCommandRequest"));
  table.back().body_limit = limits::exec_body_bytes;
  add(verb::get, "/cmd", list_commands,
      listed_of_run("listVercelCommands",
                    "The commands of a session, also of one that has ended: the newest first.",
                    "VercelCommandList"));
  add(verb::get, "/cmd/:cmd", look,
      listed_of_run("getVercelCommand", "A command.", "VercelCommandAnswer", {},
                    {{"wait", "query", "true: the answer waits for its end."}}));
  auto log =
    listed_of_run("getVercelCommandLogs",
                  "Its output from the beginning, until it has ended; also of a session that has.",
                  "VercelLogLine");
  log.answers.front() = {"200", "One JSON object a line.", lines_type, "VercelLogLine"};
  add(verb::get, "/cmd/:cmd/logs", tell_log, std::move(log));
  add(verb::post, "/cmd/:cmd/stdin", write_input, described_input());
  auto signalled = listed("killVercelCommand", "Sends a signal to its process group.",
                          "VercelCommandAnswer", "VercelSignal");
  signalled.body_optional = true;
  add(verb::post, "/cmd/:cmd/kill", kill, std::move(signalled));
}

} // namespace insula::http::vercel

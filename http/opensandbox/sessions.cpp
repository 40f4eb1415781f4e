#include "base/id.hpp"
#include "http/opensandbox/file_question.hpp"
#include "http/opensandbox/files_json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/command_line.hpp"
#include "http/sandboxes/session_id.hpp"
#include "http/text/percent.hpp"

#include <utility>

namespace insula::http::opensandbox {

namespace {

response no_session(const std::string& id) {
  return execd_failure(404, "CONTEXT_NOT_FOUND", "session not found: " + id);
}

/// Starts no sandbox by itself.
template <class Message>
void ask(const execd_target& target, const std::string& id, Message message, const reply& to,
         response unknown, response done) {
  question{*target.with, id, std::move(message), to}
    .starts(false)
    .or_else([unknown = std::move(unknown)](question_stage, const error& why) {
      if (why.code == errc::limit_reached)
        return execd_failure(429, "RUNTIME_ERROR", why.message);
      return why.code == errc::not_found ? unknown : execd_failure(why);
    })
    .template then<caf::ok_atom>([to, done = std::move(done)](caf::ok_atom) { to->respond(done); });
}

/// The directory that is meant, as its sandbox calls it, once it is known to be one. `then` is
/// called on the strand of the client.
void find_directory(asked_task task, std::function<void(const asked_task&, std::string)> then) {
  task.must_exist = true;
  task.words.front() += "/."; // Through links, and of nothing but a directory.
  run_task(std::move(task), [then = std::move(then)](const asked_task& of, const std::string& is) {
    told_entry entry;
    std::string_view left = is;
    if (!take_entry(left, entry))
      return of.to->respond(execd_failure(400, "INVALID_REQUEST_BODY", "cwd is no directory"));
    if (entry.path.ends_with("/.") && entry.path.size() > 2)
      entry.path.remove_suffix(2);
    then(of, std::string{entry.path});
  });
}

void create(const execd_target& target, const execd_call& what, const std::string& body,
            const reply& to) {
  const auto wanted = read_session_cwd(body);
  if (!wanted)
    return to->respond(execd_failure(wanted.reason()));
  const auto make = [](const asked_task& of, std::string cwd) {
    create_session_request message;
    message.id = new_command_id();
    message.cwd = std::move(cwd);
    ask(of.target, of.id, message, of.to, no_session(message.id),
        {200, write_session(message.id), "application/json; charset=utf-8"});
  };
  asked_task task{target, target.id(what), file_task::look, {wanted->empty() ? "." : *wanted}, to};
  if (wanted->empty())
    return find_directory(std::move(task),
                          [make](const asked_task& of, const std::string&) { make(of, {}); });
  auto first = task;
  first.what = file_task::make_directories;
  first.words.resize(4);
  run_task(std::move(first),
           [task, make](const asked_task&, const std::string&) { find_directory(task, make); });
}

/// Commands have a shell to stay in: what they change of its directory and its variables is there
/// for the next one.
void run(const execd_target& target, const execd_call& what, const std::string& body,
         const reply& to) {
  const auto session = percent_decode(what["sid"]);
  auto wanted = read_command_body(body);
  if (!wanted)
    return to->respond(execd_failure(wanted.reason()));
  if (!is_session_id(session))
    return to->respond(no_session(session));
  wanted->background = false;
  auto cwd = std::exchange(wanted->cwd, {});
  auto job = make_job(target, what, std::move(*wanted), to);
  job.told.id = session;
  job.told.merges = job.ends_with_client = true;
  job.command.session = session;
  job.command.only_if_session = job.told.needs_session = true;
  job.command.expands_cwd = false;
  job.command.rules = {};
  if (cwd.empty())
    return start_command(std::move(job));
  // It is where the session is from then on.
  asked_task task{target, target.id(what), file_task::look, {std::move(cwd)}, to};
  find_directory(std::move(task), [job](const asked_task&, const std::string& directory) mutable {
    job.command.command_line =
      "\\builtin cd -- " + quote(directory) + " || return\n" + job.command.command_line;
    start_command(std::move(job));
  });
}

void remove(const execd_target& target, const execd_call& what, const std::string&,
            const reply& to) {
  const auto session = percent_decode(what["sid"]);
  if (!is_session_id(session))
    return to->respond(no_session(session));
  to->answer_within(sandbox_patience, no_answer_in_time());
  ask(target, target.id(what), delete_session_request{session}, to, no_session(session),
      {200, {}, {}});
}

} // namespace

void add_session_routes(std::vector<route>& table, const execd_target& target,
                        const std::string& prefix) {
  constexpr std::string_view tag = "OpenSandbox: sessions";
  const parameter session{"sid", "path", "The session's id.", true};
  table.push_back(execd_route(verb::post, prefix + "/session", target, body_use::buffered, create,
                              {.id = "createExecdSession",
                               .summary = "A shell in which directory and variables last.",
                               .body_type = "application/json",
                               .body_schema = "ExecdSessionRequest",
                               .answers = {{"200", "Its id.", "application/json", "ExecdSession"},
                                           bad_answer,
                                           {"429", "There are as many sessions as there may be.",
                                            "application/json", "OpenSandboxError"}},
                               .tag = tag,
                               .body_optional = true}));
  table.push_back(execd_route(verb::post, prefix + "/session/:sid/run", target, body_use::buffered,
                              run,
                              {.id = "runInExecdSession",
                               .summary = "Run a command line in the session's shell, and stream "
                                          "its output.",
                               .parameters = {session},
                               .body_type = "application/json",
                               .body_schema = "ExecdSessionRunRequest",
                               .answers = {events_answer, bad_answer},
                               .tag = tag}));
  table.push_back(execd_route(verb::del, prefix + "/session/:sid", target, body_use::ignored,
                              remove,
                              {.id = "deleteExecdSession",
                               .summary = "End the session's shell and what runs in it.",
                               .parameters = {session},
                               .answers = {done_answer},
                               .tag = tag}));
}

} // namespace insula::http::opensandbox

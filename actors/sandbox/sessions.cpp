#include "actors/sandbox/sandbox_state.hpp"

#include "base/limits.hpp"

#include <charconv>

namespace insula::actors::inside_sandbox {

namespace {

constexpr std::string_view bash = "/bin/bash";

bool can_have_sessions(const sandbox_state& st) {
  return st.image->shell.ends_with("/bash");
}

/// What a session was made with, as it stands in the record: its directory, the limit of its
/// commands, and its variables, each ended by a NUL, which none of them has.
std::string definition_key(const std::string& id) {
  return "session/" + id + "/definition";
}

/// The request that has made it, if that was one with a key. It goes with the session.
std::string maker_key(const std::string& id) {
  return "session/" + id + "/maker";
}

/// The id of the session that such a request has made, and its record.
std::optional<std::pair<std::string, once_record>> made_by(const sandbox_state& st,
                                                           const std::string& key) {
  constexpr std::string_view begin = "session/", end = "/maker";
  const auto& all = st.record->entries();
  for (auto at = all.lower_bound(begin); at != all.end() && at->first.starts_with(begin); ++at) {
    if (!at->first.ends_with(end))
      continue;
    auto record = once_record::read(at->second);
    if (record.which == key && !record.expired(st.options->time->unix_ms()))
      return std::pair{at->first.substr(begin.size(), at->first.size() - begin.size() - end.size()),
                       std::move(record)};
  }
  return std::nullopt;
}

std::string as_definition(const create_session_request& from) {
  std::string text = from.cwd + '\0';
  if (from.command_timeout_ms)
    text += std::to_string(*from.command_timeout_ms);
  text += '\0';
  for (const auto& [name, value] : from.env)
    text += name + '=' + value + '\0';
  return text;
}

/// Defaults, if it was made by being used.
create_session_request definition_of(const sandbox_state& st, const std::string& id) {
  create_session_request found;
  found.id = id;
  const auto* const stored = st.record->find(definition_key(id));
  if (stored == nullptr)
    return found;
  std::string_view left = *stored;
  const auto next = [&left] {
    const auto word = left.substr(0, left.find('\0'));
    left.remove_prefix(std::min(left.size(), word.size() + 1));
    return word;
  };
  found.cwd = next();
  if (const auto limit = next(); !limit.empty())
    std::from_chars(limit.data(), limit.data() + limit.size(), found.command_timeout_ms.emplace());
  while (!left.empty()) {
    const auto variable = next();
    const auto equals = variable.find('=');
    if (equals != std::string_view::npos)
      found.env[std::string{variable.substr(0, equals)}] = variable.substr(equals + 1);
  }
  return found;
}

session_options options_of(const sandbox_state& st, create_session_request wanted) {
  const std::map<std::string, std::string> locale{{"LANG", "C.UTF-8"}, {"LC_ALL", "C.UTF-8"}};
  session_options options;
  options.id = std::move(wanted.id);
  options.place = st.place;
  options.defaults = {std::string{bash},
                      environment(st, locale, {}),
                      st.options->working_directory,
                      st.options->user,
                      {}};
  options.first = options.defaults;
  options.first.env = environment(st, locale, wanted.env);
  if (!wanted.cwd.empty())
    options.first.cwd = std::move(wanted.cwd);
  options.command_timeout_ms = wanted.command_timeout_ms;
  options.figures = st.options->figures;
  return options;
}

session_actor start_session(sandbox_pointer self, session_options options) {
  auto id = options.id;
  auto made = spawn_session(self->system(), std::move(options));
  self->monitor(made);
  self->state.sessions.emplace(std::move(id), made);
  return made;
}

/// Adds one that is not there. Errors: limit_reached; launch_failed, since only bash can be one.
result<session_actor> add_session(sandbox_pointer self, create_session_request wanted) {
  auto& st = self->state;
  if (st.sessions.size() >= limits::sessions_per_sandbox)
    return error{errc::limit_reached, "the sandbox has " + std::to_string(st.sessions.size()) +
                                        " sessions, which is as many as it may; delete one of "
                                        "them"};
  if (!can_have_sessions(st))
    return error{errc::launch_failed, "a session needs bash, and the sandbox's image has none"};
  return start_session(self, options_of(st, std::move(wanted)));
}

/// It is there, or would be if the sandbox had not been stopped meanwhile.
bool has_session(const sandbox_state& st, const std::string& id) {
  return st.sessions.count(id) > 0 || st.record->find(definition_key(id)) != nullptr;
}

error no_session(const std::string& id) {
  return {errc::not_found, "Session '" + id + "' not found"};
}

} // namespace

result<session_actor> find_session(sandbox_pointer self, const std::string& id) {
  const auto at = self->state.sessions.find(id);
  if (at != self->state.sessions.end())
    return at->second;
  return add_session(self, definition_of(self->state, id));
}

void resume_session(sandbox_pointer self, const runtime::survivor& shell, const survivor_note& note,
                    std::optional<runtime::survivor> command,
                    std::shared_ptr<process_options> process,
                    std::function<void(result<process_actor>)> on_resumed) {
  auto options = options_of(self->state, definition_of(self->state, note.session));
  options.first_shell = note.first;
  options.shell = shell;
  options.command = std::move(command);
  options.process = std::move(process);
  options.on_resumed = std::move(on_resumed);
  start_session(self, std::move(options));
}

void run_in_session(sandbox_pointer self, exec_request wanted, std::shared_ptr<void> memory,
                    reply_to<process_actor> reply) {
  if (wanted.only_if_session && !has_session(self->state, wanted.session))
    return refuse_command(self, wanted, no_session(wanted.session), std::move(reply));
  const auto session = find_session(self, wanted.session);
  if (!session)
    return refuse_command(self, wanted, session.reason(), std::move(reply));
  auto options = make_options(self, wanted.timeout_ms, wanted.context);
  options.on_over = [use = new_use(self)] {};
  const auto key = wanted.once.key;
  if (!key.empty())
    options.on_over = over_with_result(self, key, std::move(options.on_over));
  session_command command{std::make_shared<process_options>(std::move(options)),
                          {std::move(wanted.command_line), std::move(wanted.cwd), {}},
                          std::move(memory),
                          key};
  if (key.empty())
    return static_cast<void>(reply.delegate(*session, std::move(command)));
  self->request(*session, caf::infinite, std::move(command))
    .then([self, key](const process_actor& runs) { result_runs(self, key, runs); },
          [self, key](const caf::error& why) { result_does_not_run(self, key, from_caf(why)); });
}

namespace {

/// An answer that two have to agree to. The first error is the answer.
struct joint_answer {
  reply_to<caf::ok_atom> reply;
  unsigned missing = 2;

  void agree() {
    if (missing > 0 && --missing == 0)
      reply.deliver(caf::ok_atom::value);
  }
  /// False: it has been given.
  bool refuse(const caf::error& why) {
    if (std::exchange(missing, 0) == 0)
      return false;
    reply.deliver(why);
    return true;
  }
};

enum class refused_by : std::uint8_t { store, session };

/// Answers once the session has done what it is asked for, and all that has been written by now is
/// durable. `otherwise` is told whose error was the answer.
template <class Question>
void answer_when_done(sandbox_pointer self, const session_actor& session, Question question,
                      reply_to<caf::ok_atom> reply,
                      std::function<void(refused_by)> otherwise = nullptr) {
  const auto answer = std::make_shared<joint_answer>(joint_answer{std::move(reply)});
  const auto refuse = [answer, otherwise = std::move(otherwise)](refused_by whom,
                                                                 const caf::error& why) {
    if (answer->refuse(why) && otherwise)
      otherwise(whom);
  };
  self->state.record->when_durable(
    [answer] { answer->agree(); },
    [refuse](const error& why) { refuse(refused_by::store, to_caf(why)); });
  self->request(session, caf::infinite, std::move(question))
    .then([answer, use = new_use(self)](caf::ok_atom) { answer->agree(); },
          [refuse](const caf::error& why) { refuse(refused_by::session, why); });
}

/// The request has come before, and its session may be on its way.
void await_session(sandbox_pointer self, const std::string& id, reply_to<caf::ok_atom> reply) {
  const auto at = self->state.sessions.find(id);
  if (at == self->state.sessions.end())
    return self->state.record->answer(reply, caf::ok_atom::value);
  answer_when_done(self, at->second, open_atom::value, std::move(reply));
}

/// All that is stored of it.
void forget_session(sandbox_state& st, const std::string& id) {
  st.record->write({{definition_key(id), std::nullopt}, {maker_key(id), std::nullopt}});
}

} // namespace

void create_session(sandbox_pointer self, create_session_request wanted,
                    reply_to<caf::ok_atom> reply) {
  const auto id = wanted.id;
  std::vector<storage::change> changes{{definition_key(id), as_definition(wanted)}};
  if (const auto& once = wanted.once; !once.key.empty()) {
    if (const auto made = made_by(self->state, once.key)) {
      if (made->second.digest != once.digest)
        return static_cast<void>(reply.deliver(to_caf(once_conflict)));
      return await_session(self, made->first, std::move(reply));
    }
    const once_record maker{once.digest, self->state.options->time->unix_ms(), once.key};
    changes.push_back({maker_key(id), maker.text()});
  }
  if (self->state.sessions.count(id) > 0)
    return static_cast<void>(
      reply.deliver(to_caf({errc::already_exists, "Session '" + id + "' already exists"})));
  const auto made = add_session(self, std::move(wanted));
  if (!made)
    return static_cast<void>(reply.deliver(to_caf(made.reason())));
  // The shell starts while the record is on its way.
  self->state.record->write(std::move(changes));
  answer_when_done(self, *made, open_atom::value, std::move(reply),
                   [self, id, session = *made](refused_by whom) {
                     caf::anon_send_exit(session, caf::exit_reason::user_shutdown);
                     auto& all = self->state.sessions;
                     const auto at = all.find(id);
                     if (at != all.end() && at->second != session)
                       return; // Deleted, and made anew since.
                     if (at != all.end())
                       all.erase(at);
                     if (whom == refused_by::session) // Else it never was stored.
                       forget_session(self->state, id);
                   });
}

namespace {

/// Its shell is gone with the answer, and so is what was stored of it.
void delete_session(sandbox_pointer self, const std::string& id, reply_to<caf::ok_atom> reply) {
  auto& st = self->state;
  st.end_terminal(id);
  const auto session = st.sessions.extract(id);
  const bool stored = st.record->find(definition_key(id)) != nullptr;
  if (session.empty() && !stored)
    return static_cast<void>(reply.deliver(to_caf(no_session(id))));
  if (stored)
    forget_session(st, id);
  if (session.empty())
    return st.record->answer(reply, caf::ok_atom::value);
  st.ending_sessions.insert(session.mapped());
  end_session ended{{errc::session_ended, "Session '" + id + "' was deleted"}};
  if (stored)
    answer_when_done(self, session.mapped(), std::move(ended), std::move(reply));
  else
    reply.delegate(session.mapped(), std::move(ended));
}

} // namespace

/// Of a sandbox that does not run, only if it has such a session.
void remove_session(sandbox_pointer self, const delete_session_request& wanted,
                    reply_to<caf::ok_atom> reply) {
  const auto go = [=] {
    when_running(self, reply, wanted.context, [=] { delete_session(self, wanted.id, reply); });
  };
  if (lives(self->state))
    return go();
  with_record(self, reply, wanted.context, [=](errand mine) {
    auto answer = reply;
    if (has_session(self->state, wanted.id))
      go();
    else
      answer.deliver(to_caf(no_session(wanted.id)));
    mine.over();
  });
}

// ---- Terminals

namespace {

using terminal_reply = reply_to<terminal_actor, std::uint64_t, std::uint64_t>;

/// The shell is a path, or a name that is looked for in PATH.
runtime::process_spec terminal_spec(const sandbox_state& st, const std::string& shell,
                                    const runtime::shell_surroundings& from) {
  runtime::process_spec spec;
  if (shell.empty())
    spec.argv = {st.image->shell};
  else if (shell.find('/') != std::string::npos)
    spec.argv = {shell};
  else
    spec.argv = {st.image->shell, "-c", "exec \"$0\"", shell};
  spec.env = from.env;
  spec.cwd = from.cwd;
  spec.user = st.options->user;
  return spec;
}

/// What all of them have.
terminal_options common_options(sandbox_pointer self, std::uint64_t number) {
  auto& st = self->state;
  terminal_options options;
  options.place = st.place;
  options.figures = st.options->figures;
  options.on_over = [me = self->address(), number] { tell(me, terminal_over{number}); };
  options.on_use = [me = self->address(), number](bool in_use) {
    tell(me, terminal_used{number, in_use});
  };
  return options;
}

void join_terminal(sandbox_pointer self, const std::string& session, terminal_reply reply) {
  auto& terminal = self->state.terminals.at(session);
  ++terminal.joins;
  reply.delegate(terminal.actor, join_atom::value);
}

const error session_has_ended{errc::sandbox_not_running, "its session has ended"};

/// It is there, or `of` is none.
bool is_still_there(const sandbox_state& st, const std::string& session,
                    const std::optional<session_actor>& of) {
  const auto at = st.sessions.find(session);
  return !of || (at != st.sessions.end() && at->second == *of);
}

void make_and_join(sandbox_pointer self, const open_terminal_request& wanted,
                   const runtime::shell_surroundings& from,
                   const std::optional<session_actor>& session, const terminal_reply& reply) {
  with_terminal_room(
    self,
    [=] {
      auto to = reply;
      const auto& st = self->state;
      if (!is_still_there(st, wanted.session, session))
        return static_cast<void>(to.deliver(to_caf(session_has_ended)));
      if (st.terminals.count(wanted.session) == 0)
        make_terminal(self, wanted.session, terminal_spec(st, wanted.shell, from), wanted, true);
      join_terminal(self, wanted.session, std::move(to));
    },
    [reply](const error& why) {
      auto to = reply;
      to.deliver(to_caf(why));
    });
}

} // namespace

void make_terminal(sandbox_pointer self, const std::string& name, runtime::process_spec spec,
                   const open_terminal_request& wanted, bool blank) {
  auto& st = self->state;
  note("sandbox.terminal", st, wanted.context);
  const auto number = ++st.last_terminal;
  auto options = common_options(self, number);
  options.spec = std::move(spec);
  options.spec.label = note_of(name, {}).label();
  options.size = {wanted.columns, wanted.rows};
  options.request = wanted.context.id;
  options.blank = blank;
  st.terminals.emplace(
    name, session_terminal{number, spawn_terminal(self->system(), std::move(options))});
}

void resume_terminal(sandbox_pointer self, const runtime::survivor& which,
                     const std::string& session) {
  auto& st = self->state;
  const auto number = ++st.last_terminal;
  auto options = common_options(self, number);
  options.survivor = which;
  st.terminals.emplace(
    session, session_terminal{number, spawn_terminal(self->system(), std::move(options))});
}

void open_terminal(sandbox_pointer self, open_terminal_request wanted, terminal_reply reply) {
  auto& st = self->state;
  if (st.terminals.count(wanted.session) > 0)
    return join_terminal(self, wanted.session, std::move(reply));
  if (!can_have_sessions(st))
    return make_and_join(self, wanted, {st.options->working_directory, environment(st, {}, {})},
                         std::nullopt, reply);
  const auto session = find_session(self, wanted.session);
  if (!session)
    return static_cast<void>(reply.deliver(to_caf(session.reason())));
  self->request(*session, caf::infinite, look_around_atom::value)
    .then(
      [self, wanted, session = *session, reply,
       use = new_use(self)](const runtime::shell_surroundings& from) mutable {
        if (!is_still_there(self->state, wanted.session, session))
          return static_cast<void>(reply.deliver(to_caf(session_has_ended)));
        if (self->state.terminals.count(wanted.session) > 0)
          return join_terminal(self, wanted.session, std::move(reply));
        make_and_join(self, wanted, from, session, reply);
      },
      [reply](caf::error& why) mutable { reply.deliver(std::move(why)); });
}

} // namespace insula::actors::inside_sandbox

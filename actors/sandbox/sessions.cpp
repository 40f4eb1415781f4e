#include "actors/sandbox/sessions.hpp"

#include "actors/sandbox/profile.hpp"
#include "base/limits.hpp"

#include <charconv>

namespace insula::actors::inside_sandbox {

namespace {

constexpr std::string_view bash = "/bin/bash";

/// The definition of a session, as it stands in the record: its directory, the limit of its
/// commands, and its variables, each ended by a NUL, which none of them has.
std::string definition_key(const std::string& id) {
  return "session/" + id + "/definition";
}

/// The request that has made it, if that was one with a key. It goes with the session.
std::string maker_key(const std::string& id) {
  return "session/" + id + "/maker";
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

error no_session(const std::string& id) {
  return {errc::not_found, "Session '" + id + "' not found"};
}

/// An answer that two have to agree to. The first error is the answer.
struct joint_answer {
  reply<caf::ok_atom> to;
  unsigned missing = 2;

  void agree() {
    if (missing > 0 && --missing == 0)
      to.deliver(caf::ok_atom::value);
  }
  /// False: it has been given.
  bool refuse(const error& why) {
    if (std::exchange(missing, 0) == 0)
      return false;
    to.fail(why);
    return true;
  }
};

enum class refused_by : std::uint8_t { store, session };

using ok_reply = reply<caf::ok_atom>;

/// Answers once the session has done what it is asked for, and all that has been written by now is
/// durable. `otherwise` is told whose error was the answer.
void answer_when_done(core& of, const std::function<void(const ok_reply&)>& ask, const ok_reply& to,
                      std::function<void(refused_by)> otherwise = nullptr) {
  const auto answer = std::make_shared<joint_answer>(joint_answer{to});
  const auto refuse = [answer, otherwise = std::move(otherwise)](refused_by whom,
                                                                 const error& why) {
    if (answer->refuse(why) && otherwise)
      otherwise(whom);
  };
  of.record().when_durable([answer] { answer->agree(); },
                           [refuse](const error& why) { refuse(refused_by::store, why); });
  ask(ok_reply::function{
    [answer, refuse, use = of.keep_awake()](const result<caf::ok_atom>& outcome) {
      if (outcome)
        answer->agree();
      else
        refuse(refused_by::session, outcome.reason());
    }});
}

} // namespace

bool sessions::possible() const {
  return core_.image().shell.ends_with("/bash");
}

/// The id of the session that such a request has made, and its record.
std::optional<std::pair<std::string, idempotency_record>>
sessions::made_by(const std::string& key) const {
  constexpr std::string_view begin = "session/", end = "/maker";
  const auto& all = record().entries();
  for (auto at = all.lower_bound(begin); at != all.end() && at->first.starts_with(begin); ++at) {
    if (!at->first.ends_with(end))
      continue;
    auto maker = idempotency_record::read(at->second);
    if (maker.which == key && !maker.expired(options().time->unix_ms()))
      return std::pair{at->first.substr(begin.size(), at->first.size() - begin.size() - end.size()),
                       std::move(maker)};
  }
  return std::nullopt;
}

/// Defaults, if it was made by being used.
create_session_request sessions::definition_of(const std::string& id) const {
  create_session_request found;
  found.id = id;
  const auto* const stored = record().find(definition_key(id));
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

session_options sessions::options_of(create_session_request wanted) const {
  const std::map<std::string, std::string> locale{{"LANG", "C.UTF-8"}, {"LC_ALL", "C.UTF-8"}};
  session_options made;
  made.id = std::move(wanted.id);
  made.place = engine_sandbox();
  made.defaults = {
    std::string{bash}, environment(core_, locale), core_.profile().cwd, user_of(core_), {}};
  made.first = made.defaults;
  made.first.env = environment(core_, locale, wanted.env);
  if (!wanted.cwd.empty())
    made.first.cwd = std::move(wanted.cwd);
  made.command_timeout_ms = wanted.command_timeout_ms;
  made.figures = options().figures;
  return made;
}

sessions::handle sessions::start(session_options wanted) {
  auto id = wanted.id;
  auto made = core_.start_session(std::move(wanted), [this](const child_session& gone) {
    std::erase_if(ending_, [&gone](const handle& each) { return each.get() == &gone; });
  });
  live_.emplace(std::move(id), made);
  return made;
}

/// Adds one that is not there. Errors: those of find().
result<sessions::handle> sessions::add(create_session_request wanted) {
  if (live_.size() >= limits::sessions_per_sandbox)
    return error{errc::limit_reached, "the sandbox has " + std::to_string(live_.size()) +
                                        " sessions, which is as many as it may; delete one of "
                                        "them"};
  if (!possible())
    return error{errc::launch_failed, "a session needs bash, and the sandbox's image has none"};
  return start(options_of(std::move(wanted)));
}

result<sessions::handle> sessions::find(const std::string& id) {
  const auto at = live_.find(id);
  return at != live_.end() ? at->second : add(definition_of(id));
}

bool sessions::is(const std::string& id, const handle& which) const {
  const auto at = live_.find(id);
  return at != live_.end() && at->second == which;
}

bool sessions::is_stored(const std::string& id) const {
  return record().find(definition_key(id)) != nullptr;
}

void sessions::resume(const runtime::survivor& shell, const survivor_note& note,
                      std::optional<runtime::survivor> command,
                      std::shared_ptr<process_options> process,
                      std::function<void(result<process_actor>)> on_resumed) {
  auto wanted = options_of(definition_of(note.session));
  wanted.first_shell = note.first;
  wanted.shell = shell;
  wanted.command = std::move(command);
  wanted.process = std::move(process);
  wanted.on_resumed = std::move(on_resumed);
  start(std::move(wanted));
}

void sessions::run(waiting_command what, const reply<process_actor>& to) {
  auto& wanted = what.wanted;
  if (wanted.only_if_session && !has(wanted.session) && !is_stored(wanted.session))
    return to.fail(no_session(wanted.session));
  const auto session = find(wanted.session);
  if (!session)
    return to.fail(session.reason());
  auto process = make_options(core_, wanted.timeout_ms, wanted.context);
  process.on_over = [use = core_.keep_awake(), also = std::move(what.on_over)] {
    if (also)
      also();
  };
  (*session)->run({std::make_shared<process_options>(std::move(process)),
                   {.script = std::move(wanted.command_line),
                    .cwd = std::move(wanted.cwd),
                    .label = {},
                    .awaits_reader = wanted.awaits_reader},
                   std::move(what.memory),
                   wanted.idempotency.key},
                  to);
}

/// The request has come before, and its session may be on its way.
void sessions::await(const std::string& id, const reply<caf::ok_atom>& to) {
  const auto at = live_.find(id);
  if (at == live_.end())
    return record().answer(to);
  answer_when_done(
    core_, [session = at->second](const ok_reply& mine) { session->open(mine); }, to);
}

/// All that is stored of it.
void sessions::forget(const std::string& id) {
  record().write({{definition_key(id), std::nullopt}, {maker_key(id), std::nullopt}});
}

void sessions::create(const create_session_request& wanted, const reply<caf::ok_atom>& to) {
  const auto& id = wanted.id;
  std::vector<storage::change> changes{{definition_key(id), as_definition(wanted)}};
  if (const auto& request = wanted.idempotency; !request.key.empty()) {
    if (const auto made = made_by(request.key)) {
      if (made->second.digest != request.digest)
        return to.fail(key_conflict);
      return await(made->first, to);
    }
    const idempotency_record maker{request.digest, options().time->unix_ms(), request.key};
    changes.push_back({maker_key(id), maker.text()});
  }
  if (has(id))
    return to.fail({errc::already_exists, "Session '" + id + "' already exists"});
  const auto made = add(wanted);
  if (!made)
    return to.fail(made.reason());
  // The shell starts while the record is on its way.
  record().write(std::move(changes));
  answer_when_done(
    core_, [session = *made](const ok_reply& mine) { session->open(mine); }, to,
    [this, id, session = *made](refused_by whom) {
      session->kill();
      if (has(id) && !is(id, session))
        return; // Deleted, and made anew since.
      live_.erase(id);
      if (whom == refused_by::session) // Else it never was stored.
        forget(id);
    });
}

/// Its shell is gone with the answer, and so is what was stored of it.
void sessions::remove_now(const std::string& id, const reply<caf::ok_atom>& to) {
  on_deleted_(id);
  const auto session = live_.extract(id);
  const bool stored = is_stored(id);
  if (session.empty() && !stored)
    return to.fail(no_session(id));
  if (stored)
    forget(id);
  if (session.empty())
    return record().answer(to);
  ending_.insert(session.mapped());
  const auto end = [which = session.mapped(), id](const ok_reply& mine) {
    which->end({errc::session_ended, "Session '" + id + "' was deleted"}, mine);
  };
  stored ? answer_when_done(core_, end, to) : end(to);
}

void sessions::remove(const delete_session_request& wanted, const reply<caf::ok_atom>& to) {
  const auto go = [=, this] {
    core_.when_running(to, wanted.context, [=, this] { remove_now(wanted.id, to); });
  };
  if (core_.lives())
    return go();
  core_.with_record(
    wanted.context,
    [=, this] {
      if (has(wanted.id) || is_stored(wanted.id))
        go();
      else
        to.fail(no_session(wanted.id));
    },
    to.otherwise());
}

void sessions::count(sandbox_status& into) const {
  into.sessions = static_cast<std::uint32_t>(live_.size());
}

/// Their shells end with the sandbox; the next one begins without them.
void sessions::stopped(const error&) {
  for (auto& [id, session] : std::exchange(live_, {})) {
    ending_.insert(session);
    session->end(has_ended);
  }
}

void sessions::ends(const error&) {
  for (const auto& [id, session] : live_)
    session->kill();
  for (const auto& session : ending_)
    session->kill();
}

} // namespace insula::actors::inside_sandbox

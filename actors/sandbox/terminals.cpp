#include "actors/sandbox/terminals.hpp"

#include "actors/sandbox/profile.hpp"
#include "base/id.hpp"
#include "base/limits.hpp"

#include <charconv>
#include <csignal>

namespace insula::actors::inside_sandbox {

namespace {

constexpr std::string_view definitions = "terminal/", programs = "program/";

/// More than can run at once, and each at most as long as a request's command.
constexpr std::size_t most_definitions = 2 * limits::terminals_per_sandbox;

const error session_has_ended{errc::sandbox_not_running, "its session has ended"};

/// Of its record, and among all terminals: a session's id has no slash.
std::string name_of_terminal(const std::string& id) {
  return std::string{definitions} + id;
}

error not_known(const std::string& id) {
  return {errc::not_found, "there is no terminal " + id};
}

struct definition {
  std::int64_t made_ms = 0;
  std::string cwd, command; ///< None of them has a NUL, which stands between them.

  std::string text() const { return std::to_string(made_ms) + '\0' + cwd + '\0' + command; }
  static definition read(std::string_view text) {
    definition found;
    const auto next = [&text] {
      const auto word = text.substr(0, text.find('\0'));
      text.remove_prefix(std::min(text.size(), word.size() + 1));
      return word;
    };
    const auto made = next();
    std::from_chars(made.data(), made.data() + made.size(), found.made_ms);
    found.cwd = next();
    found.command = text;
    return found;
  }
};

/// Its client is counted before the terminal hears of it.
child_terminal& joined(live_terminal& terminal) {
  ++terminal.joins;
  return *terminal.actor;
}

} // namespace

void terminals::make(const std::string& name, terminal_options made,
                     const open_terminal_request& wanted) {
  note("sandbox.terminal", core_, wanted.context);
  made.spec.label = note_of(name, {}).label();
  made.size = {wanted.columns, wanted.rows};
  made.request = wanted.context.id;
  room_.add(name, std::move(made), wanted.program.has_value());
}

void terminals::make(const std::string& name, runtime::process_spec spec,
                     const open_terminal_request& wanted, bool blank) {
  terminal_options made;
  made.spec = std::move(spec);
  made.blank = blank;
  make(name, std::move(made), wanted);
}

void terminals::resume(const runtime::survivor& which, const std::string& name) {
  terminal_options left;
  left.survivor = which;
  room_.add(name, std::move(left));
  if (name.starts_with(programs))
    room_.end(name);
}

void terminals::open(const open_terminal_request& wanted, const join_reply& to) {
  if (wanted.program) {
    const auto go = [=, this] {
      core_.when_running(to, wanted.context, [=, this] { open_program(wanted, to); });
    };
    return wanted.only_if_there ? core_.when_there(wanted.context, go, to.otherwise()) : go();
  }
  if (!wanted.defined.empty())
    return open_defined(wanted, to);
  core_.when_running(to, wanted.context, [=, this] { open_of_session(wanted, to); });
}

// ---- Of sessions

/// The shell is a path, or a name that is looked for in PATH.
runtime::process_spec terminals::spec_of(const std::string& shell,
                                         const runtime::shell_surroundings& from) const {
  runtime::process_spec spec;
  if (shell.empty())
    spec.argv = {core_.image().shell};
  else if (shell.find('/') != std::string::npos)
    spec.argv = {shell};
  else
    spec.argv = {core_.image().shell, "-c", "exec \"$0\"", shell};
  spec.env = from.env;
  spec.cwd = from.cwd;
  spec.user = user_of(core_);
  return spec;
}

void terminals::make_and_join(const open_terminal_request& wanted,
                              const runtime::shell_surroundings& from, const session& of,
                              const join_reply& to) {
  room_.with_room(
    [=, this] {
      if (of && !sessions_.is(wanted.session, of))
        return to.fail(session_has_ended);
      if (!room_.has(wanted.session))
        make(wanted.session, spec_of(wanted.shell, from), wanted, true);
      joined(*room_.find(wanted.session)).join(to);
    },
    to.otherwise());
}

/// An image without bash has no sessions, but may have terminals.
void terminals::open_of_session(const open_terminal_request& wanted, const join_reply& to) {
  if (auto* const live = room_.find(wanted.session))
    return joined(*live).join(to);
  if (!sessions_.possible())
    return make_and_join(wanted, {core_.profile().cwd, environment(core_)}, nullptr, to);
  const auto found = sessions_.find(wanted.session);
  if (!found)
    return to.fail(found.reason());
  using surroundings = reply<runtime::shell_surroundings>;
  (*found)->look_around(surroundings::function{[=, this, of = *found, use = core_.keep_awake()](
                                                 const result<runtime::shell_surroundings>& from) {
    if (!from)
      return to.fail(from.reason());
    if (!sessions_.is(wanted.session, of))
      return to.fail(session_has_ended);
    if (auto* const live = room_.find(wanted.session))
      return joined(*live).join(to);
    make_and_join(wanted, *from, of, to);
  }});
}

// ---- Of programs

void terminals::open_program(const open_terminal_request& wanted, const join_reply& to) {
  room_.with_room(
    [=, this] {
      const auto& what = *wanted.program;
      terminal_options made;
      made.spec.argv = what.argv;
      made.spec.env = environment(core_, {{"TERM", std::string{terminal_type}}}, what.env);
      made.spec.cwd = what.cwd.empty() ? core_.profile().cwd : what.cwd;
      made.spec.user = user_of(core_);
      made.spec.waits_for_reader = made.spec.needs_cwd = true;
      made.has_term = true;
      made.blank = false;
      const auto name = std::string{programs} + sandbox_id::generate().str();
      make(name, std::move(made), wanted);
      joined(*room_.find(name)).join(to);
    },
    to.otherwise());
}

// ---- Of none

/// Instead of a new one, if there are as many as there may be, the oldest goes that does not run.
/// An error: all of them do.
result<std::vector<storage::change>> terminals::room_for_definition() const {
  std::size_t count = 0;
  std::string oldest;
  std::int64_t made_ms = 0;
  const auto& all = record().entries();
  for (auto at = all.lower_bound(definitions);
       at != all.end() && at->first.starts_with(definitions); ++at) {
    ++count;
    const auto made = definition::read(at->second).made_ms;
    if (!room_.has(at->first) && (oldest.empty() || made < made_ms)) {
      oldest = at->first;
      made_ms = made;
    }
  }
  if (count < most_definitions)
    return std::vector<storage::change>{};
  if (oldest.empty())
    return error{errc::limit_reached, "too many terminals in this sandbox"};
  return std::vector<storage::change>{{oldest, std::nullopt}};
}

/// With the record loaded, and with what an earlier server has left taken over. Starts nothing.
template <class... Ts, class Go>
void terminals::with_terminals(const reply<Ts...>& to, const request_context& context, Go go) {
  if (core_.lives())
    return core_.when_running(to, context, [go, to] { go(to); });
  core_.with_record(to, context, go);
}

/// Again what is defined, once there is room: it may have been forgotten meanwhile.
void terminals::make_and_join_defined(const open_terminal_request& wanted, const join_reply& to) {
  const auto name = name_of_terminal(wanted.defined);
  const auto* const stored = record().find(name);
  if (stored == nullptr)
    return to.fail(not_known(wanted.defined));
  if (!room_.has(name)) {
    const auto what = definition::read(*stored);
    auto cwd = expanded(core_, what.cwd);
    if (!cwd)
      return to.fail(cwd.reason());
    auto spec = spec_of({}, {cwd->empty() ? core_.profile().cwd : *cwd, environment(core_)});
    if (!what.command.empty())
      spec.argv.insert(spec.argv.end(), {"-c", what.command});
    make(name, std::move(spec), wanted, false);
  }
  joined(*room_.find(name)).join(wanted.takes_over, to);
}

/// When the sandbox runs.
void terminals::join_or_make_defined(const open_terminal_request& wanted, const join_reply& to) {
  const auto name = name_of_terminal(wanted.defined);
  if (record().find(name) == nullptr)
    return to.fail(not_known(wanted.defined));
  if (auto* const live = room_.find(name))
    return joined(*live).join(wanted.takes_over, to);
  room_.with_room([=, this] { make_and_join_defined(wanted, to); }, to.otherwise());
}

void terminals::open_defined(const open_terminal_request& wanted, const join_reply& to) {
  const auto go = [=, this] {
    core_.when_running(to, wanted.context, [=, this] { join_or_make_defined(wanted, to); });
  };
  if (core_.lives())
    return go();
  core_.with_record(
    wanted.context,
    [=, this] {
      if (record().find(name_of_terminal(wanted.defined)) != nullptr)
        go();
      else
        to.fail(not_known(wanted.defined));
    },
    to.otherwise());
}

void terminals::define(const define_terminal& wanted, const reply<caf::ok_atom>& to) {
  with_terminals(to, wanted.context, [this, wanted](const reply<caf::ok_atom>& mine) {
    if (!core_.exists() && !core_.lives())
      return mine.fail(core_.not_found());
    core_.with_lease(
      [=, this] {
        auto changes = room_for_definition();
        if (!changes)
          return mine.fail(changes.reason());
        const definition made{options().time->unix_ms(), wanted.cwd, wanted.command};
        changes->push_back({name_of_terminal(wanted.id), made.text()});
        record().write(std::move(*changes));
        record().when_durable([mine] { mine.deliver(caf::ok_atom::value); }, mine.otherwise());
      },
      mine.otherwise());
  });
}

void terminals::find(const find_terminal& asked, const reply<terminal_status>& to) {
  with_terminals(to, asked.context, [this, asked](const reply<terminal_status>& mine) {
    const auto name = name_of_terminal(asked.id);
    terminal_status found;
    found.known = record().find(name) != nullptr;
    const auto* const live = room_.find(name);
    if (!found.known || live == nullptr)
      return mine.deliver(found);
    using extent = reply<std::uint64_t, std::uint64_t>;
    live->actor->measure(extent::function{[found, mine](const result<extent::value>& read) mutable {
      if (read) { // Else it has ended meanwhile.
        found.running = true;
        found.end_offset = std::get<1>(*read);
      }
      mine.deliver(found);
    }});
  });
}

void terminals::forget(const forget_terminal& asked, const reply<caf::ok_atom>& to) {
  with_terminals(to, asked.context, [this, asked](const reply<caf::ok_atom>& mine) {
    const auto name = name_of_terminal(asked.id);
    if (record().find(name) == nullptr)
      return mine.fail(not_known(asked.id));
    core_.with_lease(
      [=, this] {
        if (const auto* const live = room_.find(name))
          live->actor->signal(SIGKILL);
        room_.end(name);
        record().write({{name, std::nullopt}});
        record().when_durable([mine] { mine.deliver(caf::ok_atom::value); }, mine.otherwise());
      },
      mine.otherwise());
  });
}

} // namespace insula::actors::inside_sandbox

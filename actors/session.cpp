#include "actors/session.hpp"

#include "actors/protocol/errors.hpp"
#include "actors/survivor_note.hpp"
#include "actors/weak_sender.hpp"
#include "base/limits.hpp"

#include <caf/all.hpp>

#include <deque>
#include <map>

namespace insula::actors {

namespace {

// Facts, from the runtime's thread and from processes; `shell` and `number` say which they are
// about.
struct shell_ready {
  std::uint64_t shell;
};
struct shell_failed {
  std::uint64_t shell;
  error why;
};
struct shell_ended {
  std::uint64_t shell;
};
struct turn_over {
  std::uint64_t number;
};
struct command_over {
  std::uint64_t number;
};
struct looked_around {
  result<runtime::shell_surroundings> found;
};

using session_impl =
  session_actor::extend<caf::reacts_to<shell_ready>, caf::reacts_to<shell_failed>,
                        caf::reacts_to<shell_ended>, caf::reacts_to<turn_over>,
                        caf::reacts_to<command_over>, caf::reacts_to<looked_around>>;

struct waiting_command {
  session_command command;
  caf::typed_response_promise<process_actor> reply;
  bool again = false; ///< A shell has ended that was to run it, and had not taken it.
};

struct session_state {
  static inline const char* name = "session";
  session_options options;
  bool first = true; ///< No shell has ended yet.
  std::shared_ptr<runtime::shell> shell;
  std::uint64_t last_shell = 0;
  bool up = false;   ///< The shell takes commands.
  bool busy = false; ///< One runs there, or it is asked where it is.
  std::deque<waiting_command> waiting;
  std::vector<caf::typed_response_promise<caf::ok_atom>> opening;
  std::map<std::uint64_t, waiting_command> starting;       ///< Until it is known that they run.
  std::map<std::uint64_t, started_process_actor> commands; ///< Until their output is complete.
  std::uint64_t last_command = 0;
  std::uint64_t running = 0; ///< The one whose turn it is; 0: none.
  std::vector<caf::typed_response_promise<runtime::shell_surroundings>> looking;
  std::optional<error> ending; ///< Why no more commands are taken.
  std::vector<caf::typed_response_promise<caf::ok_atom>> ended;

  /// Whatever ends this actor: nobody waits for it in vain.
  ~session_state() {
    refuse_all(to_caf(ending.value_or(error{errc::sandbox_not_running, "the node is going down"})));
    for (auto& each : std::exchange(ended, {}))
      each.deliver(caf::ok_atom::value);
    for (auto& each : std::exchange(looking, {}))
      each.deliver(surroundings());
    for (auto& [number, process] : commands)
      caf::anon_send_exit(process, caf::exit_reason::user_shutdown);
    if (up)
      options.figures->session_closed();
    if (shell)
      shell->end();
  }

  const runtime::shell_spec& spec() const { return first ? options.first : options.defaults; }

  runtime::shell_surroundings surroundings() const { return {spec().cwd, spec().env}; }

  void refuse(const caf::error& why) {
    for (auto& each : std::exchange(opening, {}))
      each.deliver(why);
    for (auto& each : std::exchange(waiting, {}))
      each.reply.deliver(why);
  }

  void refuse_all(const caf::error& why) {
    refuse(why);
    for (auto& [number, each] : std::exchange(starting, {}))
      each.reply.deliver(why);
  }
};

} // namespace
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::shell_ready)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::shell_failed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::shell_ended)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::turn_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::command_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::looked_around)

namespace insula::actors {

namespace {

using session_pointer = session_impl::stateful_pointer<session_state>;

void open_shell(session_pointer self, const runtime::survivor* left = nullptr) {
  auto& st = self->state;
  const auto me = self->address();
  const auto number = ++st.last_shell;
  runtime::shell_listener listener;
  listener.on_ready = [me, number] { post_to<session_impl>(me, shell_ready{number}); };
  listener.on_failed = [me, number](error why) {
    post_to<session_impl>(me, shell_failed{number, std::move(why)});
  };
  listener.on_ended = [me, number](runtime::process_exit) {
    post_to<session_impl>(me, shell_ended{number});
  };
  if (left != nullptr) {
    st.shell = st.options.place->take_over_shell(*left, std::move(listener));
    return;
  }
  auto spec = st.spec();
  survivor_note note;
  note.session = st.options.id;
  note.first = st.first;
  note.timeout_ms = st.options.command_timeout_ms;
  spec.label = note.label();
  st.shell = st.options.place->open_shell(std::move(spec), std::move(listener));
}

/// The next one may come once the command itself has ended; its output may still be on its way.
runtime::process_listener with_turn(runtime::process_listener listener, const caf::actor_addr& me,
                                    std::uint64_t number) {
  listener.on_ended = [me, number, next = std::move(listener.on_ended)](runtime::process_exit how) {
    next(how);
    post_to<session_impl>(me, turn_over{number});
  };
  listener.on_failed = [me, number, next = std::move(listener.on_failed)](error why) {
    next(std::move(why));
    post_to<session_impl>(me, turn_over{number});
  };
  return listener;
}

void advance(session_pointer self);

void runs(session_pointer self, std::uint64_t number, const process_actor& process) {
  if (auto started = self->state.starting.extract(number))
    started.mapped().reply.deliver(process);
}

void does_not_run(session_pointer self, std::uint64_t number, const caf::error& why) {
  auto& st = self->state;
  auto failed = st.starting.extract(number);
  if (!failed)
    return;
  auto& command = failed.mapped();
  if (from_caf(why).code != errc::sandbox_not_running || st.ending ||
      std::exchange(command.again, true))
    return static_cast<void>(command.reply.deliver(why));
  st.waiting.push_front(std::move(command)); // Nothing of it has run, so the next shell can.
  advance(self);
}

/// The one whose turn it is.
const started_process_actor& add_command(session_pointer self, std::uint64_t number,
                                         process_options process) {
  auto& st = self->state;
  process.on_over = [me = self->address(), number, over = std::move(process.on_over)] {
    post_to<session_impl>(me, command_over{number});
    if (over)
      over();
  };
  st.busy = true;
  st.running = number;
  return st.commands.emplace(number, spawn_process(self->system(), std::move(process)))
    .first->second;
}

/// The shell of an earlier server, and what runs there.
void resume(session_pointer self) {
  auto& st = self->state;
  st.first = st.options.first_shell;
  if (!st.options.shell)
    return;
  open_shell(self, &*st.options.shell);
  if (!st.options.command)
    return;
  auto process = std::move(*st.options.process);
  const auto number = ++st.last_command;
  process.launch = [place = st.options.place, which = *st.options.command, me = self->address(),
                    number](runtime::process_listener listener) {
    return place->take_over(which, with_turn(std::move(listener), me, number));
  };
  const auto& made = add_command(self, number, std::move(process));
  if (const auto tell_all = std::exchange(st.options.on_resumed, nullptr))
    self->request(made, caf::infinite, start_atom::value)
      .then([tell_all](const process_actor& runs) { tell_all(runs); },
            [tell_all](const caf::error& why) { tell_all(from_caf(why)); });
  else
    caf::anon_send(made, start_atom::value);
}

void run(session_pointer self, waiting_command next) {
  auto& st = self->state;
  const auto me = self->address();
  const auto number = ++st.last_command;
  auto process = *next.command.process; // A copy, in case that it is needed once more.
  if (!process.timeout_ms && st.first)
    process.timeout_ms = st.options.command_timeout_ms;
  auto what = next.command.what;
  auto note = note_of(st.options.id, process.timeout_ms);
  note.key = next.command.key;
  what.label = note.label();
  what.kept = !note.key.empty();
  if (what.kept)
    process.note = std::move(note);
  process.launch = [shell = st.shell, what, me, number](runtime::process_listener listener) {
    return shell->run(what, with_turn(std::move(listener), me, number));
  };
  st.starting.emplace(number, std::move(next));
  const auto& made = add_command(self, number, std::move(process));
  self->request(made, caf::infinite, start_atom::value)
    .then([self, number](const process_actor& process_now) { runs(self, number, process_now); },
          [self, number](const caf::error& why) { does_not_run(self, number, why); });
}

void advance(session_pointer self) {
  auto& st = self->state;
  if (st.busy || st.ending || (st.waiting.empty() && st.opening.empty()))
    return;
  if (!st.shell)
    return open_shell(self);
  if (!st.up || st.waiting.empty())
    return;
  auto next = std::move(st.waiting.front());
  st.waiting.pop_front();
  run(self, std::move(next));
}

/// Its shell has ended and nothing more will be heard of what ran there.
void perhaps_quit(session_pointer self) {
  auto& st = self->state;
  if (!st.ending || st.shell)
    return;
  for (auto& each : std::exchange(st.ended, {}))
    each.deliver(caf::ok_atom::value);
  if (st.commands.empty())
    self->quit();
}

session_impl::behavior_type session(session_pointer self,
                                    const std::shared_ptr<session_options>& options) {
  self->state.options = std::move(*options);
  resume(self);
  return {
    [self](open_atom) -> caf::result<caf::ok_atom> {
      auto& st = self->state;
      if (st.ending)
        return to_caf(*st.ending);
      if (st.up)
        return caf::ok_atom::value;
      auto reply = self->make_response_promise<caf::ok_atom>();
      st.opening.push_back(reply);
      advance(self);
      return reply;
    },
    [self](session_command& wanted) -> caf::result<process_actor> {
      auto& st = self->state;
      if (st.ending)
        return to_caf(*st.ending);
      if (st.waiting.size() >= limits::waiting_per_session)
        return to_caf({errc::limit_reached, "too many commands wait for this session"});
      auto reply = self->make_response_promise<process_actor>();
      st.waiting.push_back({std::move(wanted), reply});
      advance(self);
      return reply;
    },
    [self](look_around_atom) -> caf::result<runtime::shell_surroundings> {
      auto& st = self->state;
      const bool looks_already = !st.looking.empty();
      if (!looks_already && (!st.up || st.busy || st.ending))
        return st.surroundings();
      auto reply = self->make_response_promise<runtime::shell_surroundings>();
      st.looking.push_back(reply);
      if (looks_already)
        return reply;
      st.busy = true;
      st.shell->look_around([me = self->address()](result<runtime::shell_surroundings> found) {
        post_to<session_impl>(me, looked_around{std::move(found)});
      });
      return reply;
    },
    [self](end_session& said) -> caf::result<caf::ok_atom> {
      auto& st = self->state;
      auto reply = self->make_response_promise<caf::ok_atom>();
      st.ended.push_back(reply);
      if (!st.ending) {
        st.ending = std::move(said.why);
        st.refuse(to_caf(*st.ending));
        if (const auto at = st.commands.find(st.running); at != st.commands.end())
          self->send(at->second, *st.ending);
        if (st.shell)
          st.shell->end();
      }
      perhaps_quit(self);
      return reply;
    },
    [self](const shell_ready& said) {
      auto& st = self->state;
      if (said.shell != st.last_shell)
        return;
      st.up = true;
      st.options.figures->session_opened();
      for (auto& each : std::exchange(st.opening, {}))
        each.deliver(caf::ok_atom::value);
      advance(self);
    },
    [self](const shell_failed& said) {
      auto& st = self->state;
      if (said.shell != st.last_shell)
        return;
      st.shell.reset();
      st.refuse(to_caf(st.ending.value_or(said.why)));
      perhaps_quit(self);
    },
    [self](const shell_ended& said) {
      auto& st = self->state;
      if (said.shell != st.last_shell)
        return;
      st.shell.reset();
      st.first = false;
      if (std::exchange(st.up, false))
        st.options.figures->session_closed();
      perhaps_quit(self);
      advance(self);
    },
    [self](const turn_over& said) {
      auto& st = self->state;
      if (said.number != st.running)
        return;
      st.running = 0;
      st.busy = false;
      advance(self);
    },
    [self](const command_over& said) {
      self->state.commands.erase(said.number);
      perhaps_quit(self);
    },
    [self](looked_around& said) {
      auto& st = self->state;
      st.busy = false;
      const auto found = said.found ? std::move(*said.found) : st.surroundings();
      for (auto& each : std::exchange(st.looking, {}))
        each.deliver(found);
      advance(self);
    },
  };
}

} // namespace

session_actor spawn_session(caf::actor_system& system, session_options options) {
  return system.spawn(session, std::make_shared<session_options>(std::move(options)));
}

} // namespace insula::actors

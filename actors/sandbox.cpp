#include "actors/sandbox.hpp"

#include "actors/process.hpp"
#include "actors/protocol/errors.hpp"
#include "actors/sandbox_lifecycle.hpp"
#include "actors/session.hpp"
#include "actors/terminal.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <deque>
#include <functional>
#include <set>

namespace insula::actors {

namespace {

using idle_atom = caf::atom_constant<caf::atom("idle")>;
using hibernate_atom = caf::atom_constant<caf::atom("hibernate")>;

// Facts, from other threads; `start` says which attempt they are about.
struct lease_settled {
  std::uint64_t start;
  result<storage::epoch> outcome;
};
struct sandbox_ready {
  std::uint64_t start;
  std::shared_ptr<runtime::sandbox> place;
};
struct sandbox_failed {
  std::uint64_t start;
  error why;
};
struct sandbox_ended {
  std::uint64_t start;
};
struct sandbox_gone {
  std::uint64_t start;
};
struct process_over {
  std::uint64_t number;
};
struct use_over {};
struct terminal_over {
  std::uint64_t number;
};
struct terminal_used {
  std::uint64_t number;
  bool in_use;
};

using sandbox_impl = sandbox_actor::extend<
  caf::reacts_to<lease_settled>, caf::reacts_to<sandbox_ready>, caf::reacts_to<sandbox_failed>,
  caf::reacts_to<sandbox_ended>, caf::reacts_to<sandbox_gone>, caf::reacts_to<process_over>,
  caf::reacts_to<use_over>, caf::reacts_to<terminal_over>, caf::reacts_to<terminal_used>,
  caf::reacts_to<hibernate_atom>, caf::reacts_to<idle_atom>>;

using steady_clock = std::chrono::steady_clock;

/// Somebody who needs the running sandbox.
struct waiting_request {
  std::function<void()> go;
  std::function<void(const error&)> refuse;
  request_context context;
  steady_clock::time_point since = {}; ///< When it began to wait.
};

/// What is measured of a start. Nothing is decided by it, so it is by the system's clock.
struct start_watch {
  steady_clock::time_point began;
  steady_clock::time_point lease_asked;
  steady_clock::time_point record_sent;
  start_times parts{};
  request_context whose; ///< The request that made it necessary.
  bool has_had_command = false;

  std::chrono::nanoseconds& part(start_phase which) {
    return parts[static_cast<std::size_t>(which)];
  }
};

/// The terminal of one session.
struct session_terminal {
  std::uint64_t number; ///< Tells it from the next one of its session.
  joined_terminal_actor actor;
  bool in_use = false; ///< Somebody is there.
};

struct sandbox_state {
  static inline const char* name = "sandbox";
  std::optional<sandbox_id> id;
  std::shared_ptr<const sandbox_options> options;

  phase now = phase::asleep;
  std::uint64_t start = 0;  ///< Counts the attempts: what an older one still says is ignored.
  storage::epoch epoch = 0; ///< 0: the lease is not held.
  instance_count::place instance;
  std::shared_ptr<runtime::sandbox> place;
  start_watch watch;        ///< Of the last start.
  request_context deletion; ///< The request that ends it.
  bool recorded = false;    ///< This start is in the store.
  bool known = false; ///< The store was asked what it has of us, and what it had is in created_ms.
  std::string created_ms;
  std::string image_name;               ///< As recorded; empty: not yet.
  const sandbox_image* image = nullptr; ///< What the last start took. One of the options'.
  std::deque<waiting_request> waiting;
  std::shared_ptr<byte_budget> waiting_bytes =
    std::make_shared<byte_budget>(limits::waiting_sandbox_bytes); ///< For what commands say.
  std::vector<caf::typed_response_promise<caf::ok_atom>> deleting;

  std::map<std::uint64_t, started_process_actor>
    processes; ///< Until their command and its output are over.
  std::uint64_t last_process = 0;
  std::map<std::string, session_actor> sessions; ///< By id, each with its shell or none so far.
  std::set<session_actor> ending_sessions;       ///< Until the last of their output has been taken.
  std::map<std::string, session_terminal> terminals; ///< By session.
  std::map<std::uint64_t, joined_terminal_actor>
    ending_terminals; ///< By number, until they are over.
  std::uint64_t last_terminal = 0;
  std::size_t uses = 0; ///< Files that somebody holds, and commands of sessions.
  bool hibernates = false;
  std::chrono::steady_clock::time_point last_used;
  bool alarm_set = false; ///< One alarm at a time: it looks at last_used when it comes.

  /// Whatever ends this actor: nobody waits for it in vain, and no command of it is waited for.
  ~sandbox_state() {
    if (options)
      options->figures->left(now);
    const error why{errc::sandbox_not_running, "the node is going down"};
    refuse_waiting(why);
    for (auto& each : std::exchange(deleting, {}))
      each.deliver(to_caf(why));
    for (auto& [number, process] : processes)
      caf::anon_send_exit(process, caf::exit_reason::user_shutdown);
    for (auto& [session_id, session] : sessions)
      caf::anon_send_exit(session, caf::exit_reason::user_shutdown);
    for (const auto& session : ending_sessions)
      caf::anon_send_exit(session, caf::exit_reason::user_shutdown);
    for (auto& [session, terminal] : terminals)
      caf::anon_send_exit(terminal.actor, caf::exit_reason::user_shutdown);
    for (auto& [number, terminal] : ending_terminals)
      caf::anon_send_exit(terminal, caf::exit_reason::user_shutdown);
    release_lease();
  }

  void become(phase next) {
    assert(may_become(now, next));
    options->figures->left(now);
    options->figures->entered(next);
    now = next;
  }

  void refuse_waiting(const error& why) {
    for (auto& each : std::exchange(waiting, {}))
      each.refuse(why);
  }

  /// Their shells end with the sandbox; the next one begins without them.
  void end_sessions() {
    for (auto& [session_id, session] : std::exchange(sessions, {})) {
      ending_sessions.insert(session);
      caf::anon_send(session, end_session{{errc::sandbox_not_running, "the sandbox has ended"}});
    }
  }

  /// The next one to ask gets another.
  void end_terminal(const std::string& session) {
    if (const auto ending = terminals.extract(session)) {
      const auto& [number, actor, in_use] = ending.mapped();
      ending_terminals.emplace(number, actor);
      caf::anon_send(actor, delete_atom::value);
    }
  }

  /// As long as it is, it does not become idle.
  bool in_use() const {
    return !processes.empty() || uses > 0 ||
           std::any_of(terminals.begin(), terminals.end(),
                       [](const auto& each) { return each.second.in_use; });
  }

  void release_lease() {
    if (epoch != 0)
      options->leases->release(id->str(), std::exchange(epoch, 0));
  }
};

} // namespace
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::lease_settled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::sandbox_ready)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::sandbox_failed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::sandbox_ended)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::sandbox_gone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::process_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::use_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::terminal_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::terminal_used)

namespace insula::actors {

namespace {

using sandbox_pointer = counted_pointer<sandbox_state, sandbox_impl>;

template <class Fact>
void tell(const caf::actor_addr& sandbox, Fact fact) {
  if (const auto target = caf::actor_cast<sandbox_impl>(sandbox))
    caf::anon_send(target, std::move(fact));
}

/// A look at the clock in `left`, or sooner: a delayed message keeps its actor until it comes, also
/// one that has been deleted.
void set_alarm(sandbox_pointer self, std::chrono::nanoseconds left) {
  constexpr std::chrono::nanoseconds longest = std::chrono::seconds{20};
  self->state.alarm_set = true;
  self->delayed_send(self, std::min(left, longest), idle_atom::value);
}

void touch(sandbox_pointer self) {
  auto& st = self->state;
  st.last_used = st.options->time->now();
  if (!st.alarm_set && st.now == phase::running && st.options->idle_timeout.count() > 0)
    set_alarm(self, st.options->idle_timeout);
}

// ---- Starting: the lease, then the record and the sandbox side by side; running with both ----

void fall_asleep(sandbox_pointer self, const error& why) {
  auto& st = self->state;
  ++st.start;
  st.place.reset();
  st.end_sessions();
  st.recorded = false;
  st.instance = {};
  st.release_lease();
  if (st.now != phase::deleting)
    st.become(phase::asleep);
  st.refuse_waiting(why);
  if (st.hibernates)
    self->send(self, hibernate_atom::value); // Later: something may have come meanwhile.
}

/// The start is over: what it took is counted, and told to those who wait.
void account_for_start(sandbox_state& st) {
  const auto now = steady_clock::now();
  auto& watch = st.watch;
  const auto& made = st.place->creation();
  watch.part(start_phase::slot) = made.slot;
  watch.part(start_phase::cgroup) = made.cgroup;
  watch.part(start_phase::disk) = made.disk;
  watch.part(start_phase::namespaces) = made.namespaces;
  watch.part(start_phase::layers) = made.layers;
  watch.part(start_phase::mounts) = made.mounts;
  watch.part(start_phase::agent) = made.agent;
  watch.part(start_phase::ready) = now - watch.began;
  st.options->figures->started(watch.parts);
  if (watch.whose.times)
    watch.whose.times->started(watch.parts);
  for (const auto& each : st.waiting)
    if (each.context.times)
      each.context.times->waited(now - each.since);
}

void perhaps_running(sandbox_pointer self) {
  auto& st = self->state;
  if (st.now != phase::starting || !st.place || !st.recorded)
    return;
  st.become(phase::running);
  account_for_start(st);
  log::info("sandbox.running",
            {{"id", st.id->str()}, {"epoch", st.epoch}, {"request", st.watch.whose.id}});
  for (auto& each : std::exchange(st.waiting, {}))
    each.go();
  touch(self);
}

/// The output gate of a start: nobody learns of the sandbox before its record would survive a
/// crash.
void write_record(sandbox_pointer self) {
  auto& st = self->state;
  const auto now_ms = std::to_string(st.options->time->unix_ms());
  if (st.created_ms.empty())
    st.created_ms = now_ms;
  storage::write_batch batch{
    st.id->str(),
    st.epoch,
    {{"created_ms", st.created_ms}, {"image", st.image_name}, {"started_ms", now_ms}}};
  st.watch.record_sent = steady_clock::now();
  self->request(st.options->store, caf::infinite, std::move(batch), st.watch.whose)
    .then(
      [self, start = st.start](caf::ok_atom) {
        if (start != self->state.start)
          return;
        auto& watch = self->state.watch;
        watch.part(start_phase::record) = steady_clock::now() - watch.record_sent;
        self->state.recorded = true;
        perhaps_running(self);
      },
      [self, start = st.start](caf::error& why) {
        auto& state = self->state;
        if (start != state.start)
          return;
        const auto reason = from_caf(why);
        log::error(
          "sandbox.record_failed",
          {{"id", state.id->str()}, {"reason", reason.message}, {"request", state.watch.whose.id}});
        state.options->figures->not_started(start_failure::record);
        if (state.now == phase::deleting)
          return; // What is under way there ends it.
        // It counts until it is gone.
        const auto kept = std::make_shared<instance_count::place>(std::move(state.instance));
        if (state.place)
          state.place->destroy([kept] {});
        fall_asleep(self, {errc::io_failed, "its record could not be written: " + reason.message});
      });
}

void make_sandbox(sandbox_pointer self) {
  auto& st = self->state;
  runtime::sandbox_spec spec;
  spec.host_name = st.id->str().substr(0, 63);
  spec.image = st.image->layers;
  spec.limits = st.options->limits;
  runtime::sandbox_listener listener;
  // One that comes to life after nobody wants it any more is removed again.
  listener.on_ready = [me = self->address(),
                       start = st.start](std::shared_ptr<runtime::sandbox> place) {
    if (const auto target = caf::actor_cast<sandbox_impl>(me))
      caf::anon_send(target, sandbox_ready{start, std::move(place)});
    else
      place->destroy([] {});
  };
  listener.on_failed = [me = self->address(), start = st.start](error why) {
    tell(me, sandbox_failed{start, std::move(why)});
  };
  listener.on_ended = [me = self->address(), start = st.start] { tell(me, sandbox_ended{start}); };
  st.options->engine->create(std::move(spec), std::move(listener));
}

void take_lease(sandbox_pointer self) {
  auto& st = self->state;
  st.watch.lease_asked = steady_clock::now();
  st.options->leases->acquire(
    st.id->str(), [me = self->address(), start = st.start](result<storage::epoch> outcome) {
      tell(me, lease_settled{start, std::move(outcome)});
    });
}

/// The input gate: until the store has said what it has of us, nothing else is looked at.
void load_record(sandbox_pointer self, const std::function<void()>& then) {
  auto& st = self->state;
  if (st.known)
    return then();
  self
    ->request(st.options->store, caf::infinite, read_owner_atom::value, st.id->str(),
              st.now == phase::deleting ? st.deletion : st.watch.whose)
    .await(
      [self, then](const std::vector<storage::entry>& entries) {
        for (const auto& [key, value] : entries)
          if (key == "created_ms")
            self->state.created_ms = value;
          else if (key == "image")
            self->state.image_name = value;
        self->state.known = true;
        then();
      },
      [self](caf::error& why) {
        auto& state = self->state;
        const auto reason = from_caf(why);
        if (state.now != phase::deleting) {
          state.options->figures->not_started(start_failure::record);
          return fall_asleep(self, reason);
        }
        for (auto& each : std::exchange(state.deleting, {}))
          each.deliver(to_caf(reason));
        self->quit();
      });
}

/// A sandbox starts from the image that it was made from, whatever new ones start from by now.
result<void> choose_image(sandbox_state& st) {
  if (st.image_name.empty())
    st.image_name = st.options->image_name;
  const auto at = st.options->images.find(st.image_name);
  st.image = at == st.options->images.end() ? nullptr : &at->second;
  if (st.image == nullptr)
    return {{errc::launch_failed, "its image \"" + st.image_name +
                                    "\" is not there; once it has been imported again and the "
                                    "node restarted, the sandbox starts"}};
  return {};
}

/// For the first of those who wait.
void begin_start(sandbox_pointer self) {
  auto& st = self->state;
  st.become(phase::starting);
  ++st.start;
  st.watch = {};
  st.watch.began = steady_clock::now();
  st.watch.whose = st.waiting.front().context;
  auto instance = st.options->instances->take();
  if (!instance) {
    st.options->figures->not_started(start_failure::capacity);
    return fall_asleep(self, instance.reason());
  }
  st.instance = std::move(*instance);
  load_record(self, [self] {
    if (const auto ok = choose_image(self->state); !ok) {
      log::error("sandbox.no_image", {{"id", self->state.id->str()},
                                      {"image", self->state.image_name},
                                      {"request", self->state.watch.whose.id}});
      self->state.options->figures->not_started(start_failure::image);
      return fall_asleep(self, ok.reason());
    }
    take_lease(self);
  });
}

void when_running(sandbox_pointer self, waiting_request request) {
  auto& st = self->state;
  switch (st.now) {
    case phase::running: request.go(); return touch(self);
    case phase::deleting: return request.refuse({errc::sandbox_not_running, "it is being deleted"});
    case phase::asleep:
    case phase::starting:
    case phase::stopping: break;
  }
  if (st.waiting.size() >= limits::waiting_per_sandbox)
    return request.refuse(
      {errc::limit_reached, "too many requests wait for this sandbox to start"});
  request.since = steady_clock::now();
  st.waiting.push_back(std::move(request));
  if (st.now == phase::asleep)
    begin_start(self);
}

// ---- Commands

/// What every command is given, then the image's, then what is particular, each over those before.
std::vector<std::string> environment(const sandbox_state& st,
                                     const std::map<std::string, std::string>& particular,
                                     const std::map<std::string, std::string>& wanted) {
  auto env = st.options->env;
  for (const auto* more : {&st.image->env, &particular, &wanted})
    for (const auto& [name, value] : *more)
      env[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : env)
    lines.push_back(name + "=" + value);
  return lines;
}

/// A shell takes a line as its argument up to a length; a longer one it reads from a descriptor
/// that the line itself then does not see.
runtime::process_spec make_spec(const sandbox_state& st, exec_request request) {
  const auto& options = *st.options;
  runtime::process_spec spec;
  spec.argv = {st.image->shell, "-c"};
  const bool bash = st.image->shell.ends_with("/bash");
  if (!bash && !request.posix_line.empty())
    request.command_line = std::move(request.posix_line);
  if (request.command_line.size() <= limits::inline_command_bytes) {
    spec.argv.push_back(std::move(request.command_line));
  } else {
    spec.argv.emplace_back(bash ? "eval \"$(</proc/self/fd/9)\" 9<&-"
                                : "eval \"$(cat /proc/self/fd/9)\" 9<&-");
    spec.script = std::move(request.command_line);
  }
  spec.env = environment(st, {}, request.env);
  spec.cwd = request.cwd.empty() ? options.working_directory : std::move(request.cwd);
  spec.user = options.user;
  return spec;
}

void note(std::string_view event, const sandbox_state& st, const request_context& context) {
  if (log::enabled(log::level::debug))
    log::debug(event, {{"id", st.id->str()}, {"request", context.id}});
}

/// All of it but what is run.
process_options make_options(sandbox_pointer self, std::optional<std::int64_t> timeout_ms,
                             const request_context& context) {
  auto& st = self->state;
  note("sandbox.command", st, context);
  process_options options;
  options.place = st.place;
  options.timeout_ms = timeout_ms;
  options.memory_bytes = st.options->limits.memory_bytes;
  options.figures = st.options->figures;
  options.request = context.id;
  if (!std::exchange(st.watch.has_had_command, true))
    options.start_began = st.watch.began;
  return options;
}

started_process_actor add_process(sandbox_pointer self, runtime::process_spec spec,
                                  std::optional<std::int64_t> timeout_ms,
                                  const request_context& context) {
  auto& st = self->state;
  const auto number = ++st.last_process;
  auto options = make_options(self, timeout_ms, context);
  options.spec = std::move(spec);
  options.on_over = [me = self->address(), number] { tell(me, process_over{number}); };
  return st.processes.emplace(number, spawn_process(self->system(), std::move(options)))
    .first->second;
}

/// The kernel counts what commands start, but not the commands themselves: those are put into the
/// sandbox from outside.
bool full(const sandbox_state& st) {
  const std::size_t wanted = st.options->limits.processes;
  return st.processes.size() >= (wanted > 0 ? std::min(wanted, limits::commands_per_sandbox)
                                            : limits::commands_per_sandbox);
}

const error too_many{errc::limit_reached, "too many commands run in this sandbox at once"};

/// While somebody holds it the sandbox is in use.
std::shared_ptr<void> new_use(sandbox_pointer self) {
  ++self->state.uses;
  return {nullptr, [me = self->address()](void*) { tell(me, use_over{}); }};
}

// ---- Sessions

constexpr std::string_view bash = "/bin/bash";

bool can_have_sessions(const sandbox_state& st) {
  return st.image->shell.ends_with("/bash");
}

/// Adds one that is not there. Errors: limit_reached; launch_failed, since only bash can be one.
result<session_actor> add_session(sandbox_pointer self, create_session_request wanted) {
  auto& st = self->state;
  if (st.sessions.size() >= limits::sessions_per_sandbox)
    return error{errc::limit_reached, "the sandbox has " + std::to_string(st.sessions.size()) +
                                        " sessions, which is as many as it may"};
  if (!can_have_sessions(st))
    return error{errc::launch_failed, "a session needs bash, and the sandbox's image has none"};
  const std::map<std::string, std::string> locale{{"LANG", "C.UTF-8"}, {"LC_ALL", "C.UTF-8"}};
  session_options options;
  options.place = st.place;
  options.defaults = {std::string{bash}, environment(st, locale, {}), st.options->working_directory,
                      st.options->user};
  options.first = options.defaults;
  options.first.env = environment(st, locale, wanted.env);
  if (!wanted.cwd.empty())
    options.first.cwd = std::move(wanted.cwd);
  options.command_timeout_ms = wanted.command_timeout_ms;
  options.figures = st.options->figures;
  const auto made = spawn_session(self->system(), std::move(options));
  self->monitor(made);
  st.sessions.emplace(std::move(wanted.id), made);
  return made;
}

/// The one of this id, which is made with defaults if it is not there.
result<session_actor> find_session(sandbox_pointer self, const std::string& id) {
  const auto at = self->state.sessions.find(id);
  if (at != self->state.sessions.end())
    return at->second;
  return add_session(self, {.id = id});
}

/// What a command counts for until it runs; null: too much waits already.
std::shared_ptr<void> take_memory(sandbox_state& st, const exec_request& wanted) {
  const auto bytes = wanted.command_line.size() + wanted.posix_line.size();
  auto taken = std::make_shared<std::pair<byte_share, byte_share>>(byte_share{st.waiting_bytes},
                                                                   st.options->waiting_bytes);
  return taken->first.take(bytes) && taken->second.take(bytes) ? taken : nullptr;
}

template <class Reply>
void run_in_session(sandbox_pointer self, exec_request wanted, std::shared_ptr<void> memory,
                    Reply reply) {
  const auto session = find_session(self, wanted.session);
  if (!session)
    return static_cast<void>(reply.deliver(to_caf(session.reason())));
  auto options = make_options(self, wanted.timeout_ms, wanted.context);
  options.on_over = [use = new_use(self)] {};
  reply.delegate(*session, session_command{std::make_shared<process_options>(std::move(options)),
                                           {std::move(wanted.command_line), std::move(wanted.cwd)},
                                           std::move(memory)});
}

/// Answers when its shell is up.
template <class Reply>
void create_session(sandbox_pointer self, create_session_request wanted, Reply reply) {
  const auto id = wanted.id;
  if (self->state.sessions.count(id) > 0)
    return static_cast<void>(
      reply.deliver(to_caf({errc::already_exists, "Session '" + id + "' already exists"})));
  const auto made = add_session(self, std::move(wanted));
  if (!made)
    return static_cast<void>(reply.deliver(to_caf(made.reason())));
  self->request(*made, caf::infinite, open_atom::value)
    .then([reply](caf::ok_atom) mutable { reply.deliver(caf::ok_atom::value); },
          [self, id, session = *made, reply](caf::error& why) mutable {
            auto& all = self->state.sessions;
            if (const auto at = all.find(id); at != all.end() && at->second == session)
              all.erase(at);
            caf::anon_send_exit(session, caf::exit_reason::user_shutdown);
            reply.deliver(std::move(why));
          });
}

template <class Reply>
void delete_session(sandbox_pointer self, const std::string& id, Reply reply) {
  self->state.end_terminal(id);
  const auto session = self->state.sessions.extract(id);
  if (session.empty())
    return static_cast<void>(
      reply.deliver(to_caf({errc::not_found, "Session '" + id + "' not found"})));
  self->state.ending_sessions.insert(session.mapped());
  reply.delegate(session.mapped(),
                 end_session{{errc::session_ended, "Session '" + id + "' was deleted"}});
}

// ---- Terminals

/// The shell is a path, or a name that is looked for in PATH.
runtime::process_spec terminal_spec(const sandbox_state& st, const std::string& shell,
                                    runtime::shell_surroundings from) {
  runtime::process_spec spec;
  if (shell.empty())
    spec.argv = {st.image->shell};
  else if (shell.find('/') != std::string::npos)
    spec.argv = {shell};
  else
    spec.argv = {st.image->shell, "-c", "exec \"$0\"", shell};
  spec.env = std::move(from.env);
  spec.cwd = std::move(from.cwd);
  spec.user = st.options->user;
  return spec;
}

result<session_terminal*> find_or_open_terminal(sandbox_pointer self,
                                                const open_terminal_request& wanted,
                                                runtime::shell_surroundings from) {
  auto& st = self->state;
  if (const auto at = st.terminals.find(wanted.session); at != st.terminals.end())
    return &at->second;
  if (st.terminals.size() >= limits::terminals_per_sandbox)
    return error{errc::limit_reached, "too many terminals in this sandbox"};
  note("sandbox.terminal", st, wanted.context);
  const auto number = ++st.last_terminal;
  terminal_options options;
  options.place = st.place;
  options.spec = terminal_spec(st, wanted.shell, std::move(from));
  options.size = {wanted.columns, wanted.rows};
  options.figures = st.options->figures;
  options.request = wanted.context.id;
  options.on_over = [me = self->address(), number] { tell(me, terminal_over{number}); };
  options.on_use = [me = self->address(), number](bool in_use) {
    tell(me, terminal_used{number, in_use});
  };
  session_terminal made{number, spawn_terminal(self->system(), std::move(options))};
  return &st.terminals.emplace(wanted.session, std::move(made)).first->second;
}

template <class Reply>
void join_terminal(sandbox_pointer self, const open_terminal_request& wanted,
                   runtime::shell_surroundings from, Reply reply) {
  const auto terminal = find_or_open_terminal(self, wanted, std::move(from));
  if (!terminal)
    return static_cast<void>(reply.deliver(to_caf(terminal.reason())));
  reply.delegate((*terminal)->actor, join_atom::value);
}

/// A new one begins where its session is. An image without bash has no sessions, but may have
/// terminals.
template <class Reply>
void open_terminal(sandbox_pointer self, open_terminal_request wanted, Reply reply) {
  auto& st = self->state;
  if (st.terminals.count(wanted.session) > 0 || !can_have_sessions(st))
    return join_terminal(self, wanted, {st.options->working_directory, environment(st, {}, {})},
                         std::move(reply));
  const auto session = find_session(self, wanted.session);
  if (!session)
    return static_cast<void>(reply.deliver(to_caf(session.reason())));
  self->request(*session, caf::infinite, look_around_atom::value)
    .then(
      [self, wanted, session = *session, reply](runtime::shell_surroundings& from) mutable {
        const auto& all = self->state.sessions;
        const auto at = all.find(wanted.session);
        if (at == all.end() || at->second != session)
          return static_cast<void>(
            reply.deliver(to_caf({errc::sandbox_not_running, "its session has ended"})));
        join_terminal(self, wanted, std::move(from), std::move(reply));
      },
      [reply](caf::error& why) mutable { reply.deliver(std::move(why)); });
}

// ---- Files

/// `open` starts the operation once there is a sandbox to start it in.
template <class Open>
caf::result<file_channel> open_channel(sandbox_pointer self, request_context context, Open open,
                                       std::string session = {}) {
  auto reply = self->make_response_promise<file_channel>();
  when_running(
    self,
    {[=]() mutable {
       const auto& st = self->state;
       note("sandbox.file", st, context);
       if (!session.empty())
         if (const auto made = find_session(self, session); !made)
           return static_cast<void>(reply.deliver(to_caf(made.reason())));
       auto socket = open(*st.place, st.options->user);
       if (!socket)
         return static_cast<void>(reply.deliver(to_caf(socket.reason())));
       reply.deliver(file_channel{std::make_shared<unique_fd>(std::move(*socket)), new_use(self)});
     },
     [=](const error& why) mutable { reply.deliver(to_caf(why)); }, context});
  return reply;
}

caf::result<file_channel> open_file(sandbox_pointer self, runtime::file_operation what,
                                    std::string path, request_context context,
                                    std::string session) {
  return open_channel(
    self, std::move(context),
    [what, path = std::move(path)](runtime::sandbox& place, const runtime::sandbox_user& user) {
      return place.open_file(what, path, user);
    },
    std::move(session));
}

caf::result<file_channel> open_tree(sandbox_pointer self, runtime::tree_request wanted,
                                    request_context context) {
  return open_channel(
    self, std::move(context),
    [wanted = std::move(wanted)](runtime::sandbox& place, const runtime::sandbox_user& user) {
      return place.open_tree(wanted, user);
    });
}

// ---- The end

void stop(sandbox_pointer self) {
  auto& st = self->state;
  st.become(phase::stopping);
  st.options->figures->ended(sandbox_end::idle);
  log::info("sandbox.idle", {{"id", st.id->str()}});
  st.place->destroy([me = self->address(), start = st.start] { tell(me, sandbox_gone{start}); });
}

void deleted(sandbox_pointer self) {
  auto& st = self->state;
  st.end_sessions();
  st.instance = {};
  st.release_lease();
  log::info("sandbox.deleted", {{"id", st.id->str()}, {"request", st.deletion.id}});
  for (auto& each : std::exchange(st.deleting, {}))
    each.deliver(caf::ok_atom::value);
  self->quit();
}

/// Nothing runs any more. The record goes last, so that a crash before it leaves something to be
/// deleted again.
void finish_delete(sandbox_pointer self) {
  auto& st = self->state;
  if (st.epoch == 0 || st.created_ms.empty())
    return deleted(self);
  storage::write_batch batch{
    st.id->str(),
    st.epoch,
    {{"created_ms", std::nullopt}, {"image", std::nullopt}, {"started_ms", std::nullopt}}};
  self->request(st.options->store, caf::infinite, std::move(batch), st.deletion)
    .then([self](caf::ok_atom) { deleted(self); },
          [self](caf::error& why) {
            log::error("sandbox.record_stays", {{"id", self->state.id->str()},
                                                {"reason", from_caf(why).message},
                                                {"request", self->state.deletion.id}});
            deleted(self);
          });
}

void begin_delete(sandbox_pointer self) {
  auto& st = self->state;
  const auto before = st.now;
  st.become(phase::deleting);
  st.refuse_waiting({errc::sandbox_not_running, "it is being deleted"});
  if (st.place)
    return st.place->destroy(
      [me = self->address(), start = st.start] { tell(me, sandbox_gone{start}); });
  if (before != phase::asleep)
    return; // On its way: sandbox_ready or sandbox_failed comes, and goes on with this.
  // Nothing runs, but there may be a record, which only the lease's holder may remove.
  load_record(self, [self] {
    if (self->state.created_ms.empty())
      deleted(self);
    else
      take_lease(self);
  });
}

// ---- What others may know of it

sandbox_status status_of(const sandbox_state& st) {
  sandbox_status row;
  row.id = st.id->str();
  row.state = name_of(st.now);
  const auto& made = st.created_ms;
  std::from_chars(made.data(), made.data() + made.size(), row.created_ms);
  row.sessions = static_cast<std::uint32_t>(st.sessions.size());
  row.terminals = static_cast<std::uint32_t>(st.terminals.size());
  if (const auto used = st.place ? st.place->usage() : std::nullopt) {
    row.memory_bytes = used->memory_bytes;
    if (used->cpu)
      row.cpu_us = static_cast<std::uint64_t>(used->cpu->count());
    row.processes = used->processes;
  }
  return row;
}

sandbox_impl::behavior_type sandbox(sandbox_pointer self, const sandbox_id& id,
                                    std::shared_ptr<const sandbox_options> options,
                                    bool hibernates) {
  self->count_mailbox(options->figures->sandboxes);
  options->figures->entered(self->state.now);
  self->state.id = id;
  self->state.hibernates = hibernates;
  self->state.options = std::move(options);
  self->set_down_handler([self](const caf::down_msg& gone) {
    std::erase_if(self->state.ending_sessions,
                  [&](const auto& each) { return each.address() == gone.source; });
  });
  return {
    [self](exec_request& request) -> caf::result<process_actor> {
      auto memory = take_memory(self->state, request);
      if (!memory)
        return to_caf({errc::limit_reached, "too much waits to be run"});
      auto reply = self->make_response_promise<process_actor>();
      auto wanted = std::make_shared<exec_request>(std::move(request));
      when_running(
        self, {[self, reply, wanted, memory]() mutable {
                 if (!wanted->session.empty())
                   return run_in_session(self, std::move(*wanted), std::move(memory), reply);
                 if (full(self->state))
                   return static_cast<void>(reply.deliver(to_caf(too_many)));
                 const auto timeout_ms = wanted->timeout_ms;
                 const auto context = std::move(wanted->context);
                 reply.delegate(add_process(self, make_spec(self->state, std::move(*wanted)),
                                            timeout_ms, context),
                                start_atom::value);
               },
               [reply](const error& why) mutable { reply.deliver(to_caf(why)); }, wanted->context});
      return reply;
    },
    [self](create_session_request& request) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      const auto context = request.context;
      when_running(
        self,
        {[self, reply, request]() mutable { create_session(self, std::move(request), reply); },
         [reply](const error& why) mutable { reply.deliver(to_caf(why)); }, context});
      return reply;
    },
    [self](delete_session_request& request) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      when_running(self, {[self, reply, id = request.id]() { delete_session(self, id, reply); },
                          [reply](const error& why) mutable { reply.deliver(to_caf(why)); },
                          std::move(request.context)});
      return reply;
    },
    [self](
      open_terminal_request& request) -> caf::result<terminal_actor, std::uint64_t, std::uint64_t> {
      auto reply = self->make_response_promise<terminal_actor, std::uint64_t, std::uint64_t>();
      const auto context = request.context;
      when_running(
        self, {[self, reply, request]() mutable { open_terminal(self, std::move(request), reply); },
               [reply](const error& why) mutable { reply.deliver(to_caf(why)); }, context});
      return reply;
    },
    [self](status_atom) { return status_of(self->state); },
    [self](read_file_request& request) {
      return open_file(self, runtime::file_operation::read, std::move(request.path),
                       std::move(request.context), std::move(request.session));
    },
    [self](write_file_request& request) {
      return open_file(self, runtime::file_operation::write, std::move(request.path),
                       std::move(request.context), std::move(request.session));
    },
    [self](read_tree_request& request) {
      return open_tree(
        self, {runtime::file_operation::read, std::move(request.path), std::move(request.excludes)},
        std::move(request.context));
    },
    [self](write_tree_request& request) {
      return open_tree(self, {runtime::file_operation::write, std::move(request.path), {}},
                       std::move(request.context));
    },
    [self](probe_request& asked) -> caf::result<bool> {
      auto reply = self->make_response_promise<bool>();
      when_running(
        self, {[self, reply, context = asked.context]() mutable {
                 if (full(self->state))
                   return static_cast<void>(reply.deliver(false)); // It can run no program now.
                 exec_request request;
                 request.command_line = "true";
                 constexpr std::int64_t patience_ms = 10'000;
                 reply.delegate(add_process(self, make_spec(self->state, std::move(request)),
                                            patience_ms, context),
                                probe_atom::value);
               },
               [reply](const error&) mutable { reply.deliver(false); }, asked.context});
      return reply;
    },
    [self](find_atom, request_context& context) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      when_running(self, {[reply]() mutable { reply.deliver(caf::ok_atom::value); },
                          [reply](const error& why) mutable { reply.deliver(to_caf(why)); },
                          std::move(context)});
      return reply;
    },
    [self](delete_atom, request_context& context) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      auto& st = self->state;
      st.deleting.push_back(reply);
      if (st.now != phase::deleting) {
        if (st.place && st.now == phase::running)
          st.options->figures->ended(sandbox_end::deleted);
        st.deletion = std::move(context);
        begin_delete(self);
      }
      return reply;
    },
    [self](lease_settled& said) {
      auto& st = self->state;
      if (said.start != st.start) {
        if (said.outcome)
          st.options->leases->release(st.id->str(), *said.outcome);
        return;
      }
      st.watch.part(start_phase::lease) = steady_clock::now() - st.watch.lease_asked;
      if (said.outcome)
        st.epoch = *said.outcome;
      if (st.now == phase::deleting)
        return finish_delete(self);
      if (!said.outcome) {
        st.options->figures->not_started(start_failure::lease);
        return fall_asleep(self, said.outcome.reason());
      }
      write_record(self);
      make_sandbox(self);
    },
    [self](sandbox_ready& said) {
      auto& st = self->state;
      if (said.start != st.start)
        return said.place->destroy([] {});
      st.place = std::move(said.place);
      if (st.now == phase::deleting)
        return st.place->destroy(
          [me = self->address(), start = st.start] { tell(me, sandbox_gone{start}); });
      perhaps_running(self);
    },
    [self](sandbox_failed& said) {
      auto& st = self->state;
      if (said.start != st.start)
        return;
      log::error(
        "sandbox.not_started",
        {{"id", st.id->str()}, {"reason", said.why.message}, {"request", st.watch.whose.id}});
      st.options->figures->not_started(
        said.why.code == errc::capacity_exceeded ? start_failure::capacity : start_failure::launch);
      if (st.now == phase::deleting)
        return finish_delete(self);
      fall_asleep(self, said.why);
    },
    [self](const sandbox_ended& said) {
      auto& st = self->state;
      if (said.start != st.start)
        return;
      log::warning("sandbox.ended",
                   {{"id", st.id->str()}, {"reason", "its first process is gone"}});
      if (st.now == phase::deleting || st.now == phase::stopping)
        return; // sandbox_gone follows.
      if (st.now == phase::running)
        st.options->figures->ended(sandbox_end::died);
      else
        st.options->figures->not_started(start_failure::launch);
      fall_asleep(self, {errc::sandbox_not_running, "it has ended"});
    },
    [self](const sandbox_gone& said) {
      auto& st = self->state;
      if (said.start != st.start || !st.place)
        return; // It may be said twice, when a stop was overtaken by a delete.
      st.place.reset();
      if (st.now == phase::deleting)
        return finish_delete(self);
      // Stopped for being idle; whoever has come meanwhile gets a fresh one.
      auto waiting = std::exchange(st.waiting, {});
      fall_asleep(self, {errc::sandbox_not_running, "it was stopped"});
      st.waiting = std::move(waiting);
      if (!st.waiting.empty())
        begin_start(self);
    },
    [self](const process_over& said) {
      self->state.processes.erase(said.number);
      if (self->state.processes.empty())
        touch(self);
    },
    [self](const use_over&) {
      --self->state.uses;
      touch(self);
    },
    [self](const terminal_over& said) {
      auto& st = self->state;
      st.ending_terminals.erase(said.number);
      for (auto at = st.terminals.begin(); at != st.terminals.end(); ++at)
        if (at->second.number == said.number) {
          st.terminals.erase(at);
          return touch(self);
        }
    },
    [self](const terminal_used& said) {
      auto& st = self->state;
      for (auto& [session, terminal] : st.terminals)
        if (terminal.number == said.number) {
          terminal.in_use = said.in_use;
          touch(self);
        }
    },
    [self](hibernate_atom) {
      const auto& st = self->state;
      if (st.now == phase::asleep && st.waiting.empty() && st.deleting.empty())
        self->quit();
    },
    [self](idle_atom) {
      auto& st = self->state;
      st.alarm_set = false;
      if (st.now != phase::running)
        return;
      const auto now = st.options->time->now();
      if (st.in_use())
        st.last_used = now;
      const auto left = st.options->idle_timeout - (now - st.last_used);
      if (left.count() <= 0)
        return stop(self);
      set_alarm(self, left);
    },
  };
}

} // namespace

sandbox_actor spawn_sandbox(caf::actor_system& system, sandbox_id id,
                            std::shared_ptr<const sandbox_options> options, bool hibernates) {
  return system.spawn(sandbox, std::move(id), std::move(options), hibernates);
}

} // namespace insula::actors

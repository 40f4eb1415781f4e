#include "actors/terminal.hpp"

#include "actors/deadline.hpp"
#include "actors/protocol/errors.hpp"
#include "actors/weak_sender.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <csignal>
#include <map>
#include <sys/wait.h>

namespace insula::actors {

namespace {

using kill_atom = caf::atom_constant<caf::atom("kill")>;

// Facts, from the runtime's thread.
struct terminal_started {};
struct terminal_failed {
  error why;
};
struct terminal_ended {
  runtime::process_exit how;
};
struct terminal_read {
  std::uint64_t question;
  runtime::log_chunk chunk;
};
struct terminal_measured {
  std::uint64_t question;
  runtime::log_extent extent;
};
struct input_taken {
  std::uint64_t question;
  bool whole;
};

using terminal_impl =
  joined_terminal_actor::extend<caf::reacts_to<terminal_started>, caf::reacts_to<terminal_failed>,
                                caf::reacts_to<terminal_ended>, caf::reacts_to<terminal_read>,
                                caf::reacts_to<terminal_measured>, caf::reacts_to<input_taken>,
                                caf::reacts_to<kill_atom>>;

using join_promise = caf::typed_response_promise<terminal_actor, std::uint64_t, std::uint64_t>;

struct open_question {
  std::uint64_t reader; ///< Whose it is; 0: no client's.
  caf::typed_response_promise<output_chunk> reply;
};

using extent_promise = caf::typed_response_promise<std::uint64_t, std::uint64_t>;

struct waiting_input {
  std::size_t bytes; ///< That it counts for.
  caf::typed_response_promise<caf::ok_atom> reply;
};

const error over{errc::sandbox_not_running, "the terminal has ended"};

struct terminal_state {
  static inline const char* name = "terminal";
  terminal_options options;
  std::shared_ptr<runtime::terminal> command;
  std::vector<join_promise> starting;
  std::map<std::uint64_t, join_promise> joining;
  std::map<std::uint64_t, extent_promise> measuring;
  std::map<std::uint64_t, open_question> questions;
  std::map<std::uint64_t, waiting_input> inputs;
  std::uint64_t last_question = 0;                  ///< Of all four.
  std::size_t input_bytes = 0;                      ///< That wait.
  std::map<caf::actor_addr, std::uint64_t> clients; ///< With their numbers as readers.
  std::uint64_t last_client = 0;
  std::optional<error> never_ran;
  bool started = false;
  bool ended = false;
  bool hung_up = false;
  deadline<terminal_impl, kill_atom> time;

  /// Whatever ends this actor: nobody waits for it in vain, and nothing is left running.
  ~terminal_state() {
    const auto why = to_caf({errc::sandbox_not_running, "the node is going down"});
    for (auto& each : starting)
      each.deliver(why);
    for (auto& [number, join] : joining)
      join.deliver(why);
    for (auto& [number, measure] : measuring)
      measure.deliver(why);
    for (auto& [number, question] : questions)
      question.reply.deliver(why);
    for (auto& [number, input] : inputs)
      input.reply.deliver(why);
    if (command && !ended && !never_ran)
      command->signal(SIGKILL);
    time.stop();
    leave();
  }

  void leave() {
    if (started && !ended)
      options.figures->terminal_over();
  }

  void is_over() {
    options.place.reset();
    if (const auto tell = std::exchange(options.on_over, nullptr))
      tell();
  }
};

/// Questions that are open at once, of one terminal: each client has one, and some more.
constexpr std::size_t max_questions = 4 * limits::clients_per_terminal;

process_end as_end(const runtime::process_exit& how) {
  process_end end;
  end.signal = WIFSIGNALED(how.status) ? WTERMSIG(how.status) : 0;
  end.exit_code = end.signal != 0 ? 128 + end.signal : WEXITSTATUS(how.status);
  end.out_of_memory = how.out_of_memory;
  return end;
}

output_chunk as_output(runtime::log_chunk from) {
  output_chunk chunk{std::move(static_cast<output_piece&>(from)), {}};
  if (from.ended)
    chunk.ended = as_end(*from.ended);
  return chunk;
}

} // namespace
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::terminal_started)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::terminal_failed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::terminal_ended)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::terminal_read)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::terminal_measured)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::input_taken)

namespace insula::actors {

namespace {

using terminal_pointer = terminal_impl::stateful_pointer<terminal_state>;

/// `word`: NAME=value, in place of what the name had.
void set_variable(std::vector<std::string>& env, std::string word) {
  const auto name = word.substr(0, word.find('=') + 1);
  std::erase_if(env, [&](const auto& each) { return each.starts_with(name); });
  env.push_back(std::move(word));
}

/// What its process is given comes from outside, but for this. With the second the terminal is
/// blank when bash's first prompt comes, as the bridge's contract has it.
void complete(terminal_options& options) {
  auto& env = options.spec.env;
  if (!options.has_term)
    set_variable(env, "TERM=" + std::string{terminal_type});
  if (options.blank)
    set_variable(env, "PROMPT_COMMAND=clear; unset PROMPT_COMMAND");
}

void start(terminal_pointer self) {
  auto& st = self->state;
  complete(st.options);
  const auto me = self->address();
  runtime::process_listener listener;
  listener.on_started = [me] { post_to<terminal_impl>(me, terminal_started{}); };
  listener.on_failed = [me](error why) {
    post_to<terminal_impl>(me, terminal_failed{std::move(why)});
  };
  listener.on_ended = [me](runtime::process_exit how) {
    post_to<terminal_impl>(me, terminal_ended{how});
  };
  auto& place = *st.options.place;
  st.command = st.options.survivor
                 ? place.take_over_terminal(*st.options.survivor, std::move(listener))
                 : place.open_terminal(std::move(st.options.spec), st.options.size, listener);
  self->state.time.set(self, limits::start_patience);
}

/// True: it is one now.
bool add_client(terminal_pointer self) {
  auto& st = self->state;
  const auto who = caf::actor_cast<caf::actor_addr>(self->current_sender());
  if (!who || st.clients.count(who) > 0)
    return true;
  if (st.clients.size() >= limits::clients_per_terminal)
    return false;
  self->monitor(who);
  st.clients.emplace(who, ++st.last_client);
  if (st.clients.size() == 1)
    st.options.on_use(true);
  return true;
}

void remove_client(terminal_pointer self, const caf::actor_addr& who) {
  auto& st = self->state;
  const auto gone = st.clients.extract(who);
  if (!gone)
    return;
  std::erase_if(st.questions,
                [&](const auto& each) { return each.second.reader == gone.mapped(); });
  st.command->forget(gone.mapped());
  if (st.clients.empty())
    st.options.on_use(false);
}

/// All but this one have to go.
void remove_others(terminal_pointer self, const caf::actor_addr& who) {
  std::vector<caf::actor_addr> others;
  for (const auto& [client, number] : self->state.clients)
    if (client != who)
      others.push_back(client);
  for (const auto& each : others) {
    if (const auto client = caf::actor_cast<caf::actor>(each))
      caf::anon_send(client, taken_over_atom::value);
    self->demonitor(each);
    remove_client(self, each);
  }
}

caf::result<terminal_actor, std::uint64_t, std::uint64_t> join(terminal_pointer self) {
  auto& st = self->state;
  if (st.never_ran)
    return to_caf(*st.never_ran);
  if (st.ended)
    return to_caf(over);
  if (!add_client(self))
    return to_caf({errc::limit_reached, "too many clients at this terminal"});
  auto reply = self->make_response_promise<terminal_actor, std::uint64_t, std::uint64_t>();
  if (!st.started) {
    st.starting.push_back(reply);
    return reply;
  }
  const auto number = ++st.last_question;
  st.joining.emplace(number, reply);
  st.command->measure([me = self->address(), number](runtime::log_extent extent) {
    post_to<terminal_impl>(me, terminal_measured{number, extent});
  });
  return reply;
}

/// One that has not started yet is told again when it has: the first word may come before there is
/// a process to hear it.
void hang_up(terminal_pointer self) {
  auto& st = self->state;
  st.hung_up = true;
  st.command->signal(SIGHUP);
  st.time.set(self, limits::kill_grace);
}

void failed(terminal_pointer self, error why) {
  auto& st = self->state;
  st.time.stop();
  st.never_ran = why;
  st.is_over(); // First: who asks again gets a new one.
  for (auto& each : std::exchange(st.starting, {}))
    each.deliver(to_caf(why));
}

terminal_impl::behavior_type terminal(terminal_pointer self,
                                      const std::shared_ptr<terminal_options>& options) {
  self->state.options = std::move(*options);
  self->set_down_handler([self](const caf::down_msg& gone) { remove_client(self, gone.source); });
  start(self);
  return {
    [self](const read_output& asked) -> caf::result<output_chunk> {
      auto& st = self->state;
      if (st.never_ran)
        return to_caf(*st.never_ran);
      if (st.questions.size() >= max_questions)
        return to_caf({errc::limit_reached, "too many readers wait for this terminal"});
      const auto who = caf::actor_cast<caf::actor_addr>(self->current_sender());
      const auto client = st.clients.find(who);
      const auto reader = client == st.clients.end() ? 0 : client->second;
      auto reply = self->make_response_promise<output_chunk>(); // It takes the sender with it.
      const auto number = ++st.last_question;
      st.questions.emplace(number, open_question{reader, reply});
      st.command->read_for(reader, asked.offset, asked.max_bytes,
                           [me = self->address(), number](runtime::log_chunk chunk) {
                             post_to<terminal_impl>(me, terminal_read{number, std::move(chunk)});
                           });
      return reply;
    },
    [](detach_atom, std::uint64_t) {},
    [self](write_input& typed) -> caf::result<caf::ok_atom> {
      auto& st = self->state;
      if (st.ended || st.never_ran)
        return to_caf(over);
      const auto bytes = typed.bytes.size() + limits::waiting_input_cost;
      if (st.input_bytes + bytes > limits::waiting_input_bytes)
        return to_caf({errc::limit_reached, "too much input waits for this terminal"});
      auto reply = self->make_response_promise<caf::ok_atom>();
      const auto number = ++st.last_question;
      st.input_bytes += bytes;
      st.inputs.emplace(number, waiting_input{bytes, reply});
      st.command->write(std::move(typed.bytes), [me = self->address(), number](bool whole) {
        post_to<terminal_impl>(me, input_taken{number, whole});
      });
      return reply;
    },
    [self](const resize_terminal& to) {
      self->state.command->resize({to.columns, to.rows});
    },
    [self](const signal_terminal& wanted) { self->state.command->signal(wanted.number); },
    [self](join_atom) { return join(self); },
    [self](join_atom,
           bool takes_over) -> caf::result<terminal_actor, std::uint64_t, std::uint64_t> {
      const auto& clients = self->state.clients;
      const auto who = caf::actor_cast<caf::actor_addr>(self->current_sender());
      if (!takes_over && clients.size() > clients.count(who))
        return to_caf({errc::already_exists, "another client is at this terminal"});
      auto joined = join(self); // The sender goes with its promise.
      if (!self->state.never_ran && !self->state.ended)
        remove_others(self, who); // Else they are told of the end.
      return joined;
    },
    [self](measure_atom) -> caf::result<std::uint64_t, std::uint64_t> {
      auto& st = self->state;
      if (st.ended || st.never_ran)
        return to_caf(over);
      auto reply = self->make_response_promise<std::uint64_t, std::uint64_t>();
      const auto number = ++st.last_question;
      st.measuring.emplace(number, reply);
      st.command->measure([me = self->address(), number](runtime::log_extent extent) {
        post_to<terminal_impl>(me, terminal_measured{number, extent});
      });
      return reply;
    },
    [self](is_quiet_atom, const std::vector<std::int32_t>& shells) {
      const auto& st = self->state;
      return st.started && !st.ended && st.clients.empty() &&
             std::find(shells.begin(), shells.end(), st.command->leader()) != shells.end();
    },
    [self](delete_atom) {
      if (!self->state.ended && !self->state.never_ran)
        hang_up(self);
    },
    [self](const terminal_started&) {
      auto& st = self->state;
      st.started = true;
      st.time.stop();
      if (st.hung_up)
        hang_up(self);
      st.options.figures->terminal_runs();
      if (log::enabled(log::level::debug))
        log::debug("terminal.started", {{"request", st.options.request}});
      for (auto& each : std::exchange(st.starting, {}))
        each.deliver(caf::actor_cast<terminal_actor>(self), std::uint64_t{0}, std::uint64_t{0});
    },
    [self](terminal_failed& said) {
      log::info("terminal.not_started",
                {{"reason", said.why.message}, {"request", self->state.options.request}});
      failed(self, std::move(said.why));
    },
    [self](const terminal_ended&) {
      auto& st = self->state;
      st.time.stop();
      st.leave();
      st.ended = true;
      st.is_over();
    },
    [self](terminal_read& said) {
      auto open = self->state.questions.extract(said.question);
      if (open.empty())
        return;
      auto& chunk = said.chunk;
      if (chunk.ended && chunk.ended->lost) {
        if (chunk.frames.empty())
          return static_cast<void>(open.mapped().reply.deliver(
            to_caf({errc::sandbox_not_running, "the sandbox has ended"})));
        chunk.ended.reset(); // First what there is; the next question hears of the loss.
      }
      open.mapped().reply.deliver(as_output(std::move(chunk)));
    },
    [self](const terminal_measured& said) {
      const auto [begin, end] = said.extent;
      if (auto asked = self->state.measuring.extract(said.question))
        return static_cast<void>(asked.mapped().deliver(begin, end));
      auto open = self->state.joining.extract(said.question);
      if (open.empty())
        return;
      const auto kept = end > limits::terminal_bytes ? end - limits::terminal_bytes : 0;
      open.mapped().deliver(caf::actor_cast<terminal_actor>(self), std::max(begin, kept), end);
    },
    [self](const input_taken& said) {
      auto& st = self->state;
      auto open = st.inputs.extract(said.question);
      if (open.empty())
        return;
      st.input_bytes -= open.mapped().bytes;
      if (said.whole)
        open.mapped().reply.deliver(caf::ok_atom::value);
      else
        open.mapped().reply.deliver(to_caf(over));
    },
    [self](kill_atom) {
      auto& st = self->state;
      if (!st.started && !st.never_ran && st.options.place->stands_still())
        return self->state.time.set(self,
                                    limits::start_patience); // It cannot, before that goes on.
      st.command->signal(SIGKILL);
      if (!st.started && !st.never_ran)
        failed(self, {errc::launch_failed, "it did not come to life in time"});
    },
  };
}

} // namespace

joined_terminal_actor spawn_terminal(caf::actor_system& system, terminal_options options) {
  return system.spawn(terminal, std::make_shared<terminal_options>(std::move(options)));
}

} // namespace insula::actors

#include "actors/process.hpp"

#include "actors/deadline.hpp"
#include "actors/protocol/errors.hpp"
#include "actors/weak_sender.hpp"
#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <csignal>
#include <map>
#include <sys/wait.h>

namespace insula::actors {

namespace {

using expire_atom = caf::atom_constant<caf::atom("expire")>;
using kill_atom = caf::atom_constant<caf::atom("kill")>;

// Facts, from the runtime's thread.
struct command_started {};
struct command_failed {
  error why;
};
struct command_ended {
  runtime::process_exit how;
};
struct output_complete {};
struct output_measured {
  std::uint64_t question;
  runtime::log_extent extent;
};
struct log_opened {
  std::uint64_t question;
  log_file log;
};
struct output_read {
  std::uint64_t question;
  runtime::log_chunk chunk;
};
struct input_written {
  std::uint64_t question;
  input_progress progress;
};

using process_impl =
  started_process_actor::extend<caf::reacts_to<command_started>, caf::reacts_to<command_failed>,
                                caf::reacts_to<command_ended>, caf::reacts_to<output_complete>,
                                caf::reacts_to<output_read>, caf::reacts_to<output_measured>,
                                caf::reacts_to<log_opened>, caf::reacts_to<input_written>,
                                caf::reacts_to<expire_atom>, caf::reacts_to<kill_atom>>;

/// Who reads waits for the answer.
struct open_question {
  read_output asked;
  caf::typed_response_promise<output_chunk> reply;

  bool is_of(std::uint64_t reader) const { return asked.attached && asked.reader == reader; }
};

struct process_state {
  static inline const char* name = "process";
  process_options options;
  std::shared_ptr<runtime::process> command;
  std::optional<caf::typed_response_promise<process_actor>> starting;
  std::optional<caf::typed_response_promise<bool>> probing;
  std::map<std::uint64_t, open_question> questions;
  std::map<std::uint64_t, caf::typed_response_promise<std::uint64_t, std::uint64_t>> measuring;
  std::map<std::uint64_t, caf::typed_response_promise<log_file>> opening;
  std::map<std::uint64_t, caf::typed_response_promise<input_progress>> writing;
  std::uint64_t last_question = 0;
  std::uint64_t reader = 0; ///< The foreground reader; 0: none, or one that has no number.
  std::optional<error> never_ran;
  error lost{errc::sandbox_not_running, "the sandbox has ended"}; ///< What is said if it is.
  bool ended = false;
  runtime::process_exit how; ///< Once it has.
  bool complete = false;     ///< Nothing of it is left.
  bool end_told = false;     ///< A reader knows of its end, which may be known here only next.
  std::vector<caf::typed_response_promise<caf::ok_atom>> interrupting;
  bool timed_out = false;
  bool killed = false;
  bool started = false;
  bool read = false; ///< Its first output, or its end.
  std::chrono::steady_clock::time_point asked_at = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point started_at;
  deadline<process_impl, expire_atom> time; ///< To start, and then to run.

  /// Whatever ends this actor: nobody waits for it in vain.
  ~process_state() {
    // Not the code for what was never sent: it may run.
    const auto why = to_caf({errc::sandbox_not_running, "the node is going down"});
    const auto going = to_caf({errc::node_unreachable, "the node is going down"});
    if (starting)
      starting->deliver(why);
    if (probing)
      probing->deliver(false);
    for (auto& [number, question] : questions)
      question.reply.deliver(going);
    for (auto& [number, question] : measuring)
      question.deliver(going);
    for (auto& [number, question] : opening)
      question.deliver(going);
    for (auto& [number, question] : writing)
      question.deliver(going);
    for (auto& each : interrupting)
      each.deliver(going);
    if (command && !ended)
      command->detach();
    stop_running();
    time.stop();
  }

  void stop_running() {
    if (started && !ended)
      options.figures->command_over();
  }

  void note(std::string_view event) const {
    if (log::enabled(log::level::debug))
      log::debug(event, {{"request", options.request}});
  }

  /// What is told to a reader is looked at on its way.
  void account_for(const runtime::log_chunk& chunk) {
    auto& count = *options.figures;
    if (chunk.reader_dropped)
      count.reader_dropped();
    if (chunk.lost_bytes > 0)
      count.lost_output(chunk.lost_bytes);
    if (chunk.frames.empty() || std::exchange(read, true))
      return;
    const auto now = std::chrono::steady_clock::now();
    count.took(exec_phase::first_output, now - started_at);
    if (options.start_began)
      count.first_byte(now - *options.start_began);
  }

  void over() {
    complete = true;
    for (auto& each : std::exchange(interrupting, {}))
      each.deliver(caf::ok_atom::value);
    options.place.reset();
    time.stop();
    if (const auto tell = std::exchange(options.on_over, nullptr))
      tell();
  }
};

/// Questions that are open at once, of one process; the attached reader has one at most.
constexpr std::size_t max_questions = 256;

process_end as_end(const runtime::process_exit& how, const process_state& st) {
  process_end end;
  end.exit_code = WIFSIGNALED(how.status) ? 128 + WTERMSIG(how.status) : WEXITSTATUS(how.status);
  end.signal = WIFSIGNALED(how.status) ? WTERMSIG(how.status) : 0;
  end.lost = how.lost;
  end.timed_out = st.timed_out;
  end.timeout_ms = st.options.timeout_ms.value_or(0);
  end.out_of_memory = how.out_of_memory;
  end.memory_bytes = st.options.memory_bytes;
  return end;
}

output_chunk as_output(runtime::log_chunk from, const process_state& st) {
  output_chunk chunk{std::move(static_cast<output_piece&>(from)), {}};
  if (from.ended)
    chunk.ended = as_end(*from.ended, st);
  return chunk;
}

} // namespace
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::command_started)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::command_failed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::command_ended)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::output_complete)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::log_opened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::output_measured)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::output_read)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::input_written)

namespace insula::actors {

namespace {

using process_pointer = process_impl::stateful_pointer<process_state>;

/// None: it has all the time there is.
std::optional<std::chrono::milliseconds> time_left(const process_state& st) {
  using std::chrono::milliseconds;
  std::optional<milliseconds> left;
  if (const auto deadline = st.options.deadline)
    left = std::chrono::duration_cast<milliseconds>(*deadline - st.started_at);
  else if (const auto limit = st.options.timeout_ms)
    left = milliseconds{*limit};
  return left ? std::optional{std::max(*left, milliseconds{0})} : left;
}

void start(process_pointer self) {
  auto& st = self->state;
  const auto me = self->address();
  runtime::process_listener listener;
  listener.on_started = [me] { post_to<process_impl>(me, command_started{}); };
  listener.on_failed = [me](error why) {
    post_to<process_impl>(me, command_failed{std::move(why)});
  };
  listener.on_ended = [me](runtime::process_exit how) {
    post_to<process_impl>(me, command_ended{how});
  };
  listener.on_complete = [me] { post_to<process_impl>(me, output_complete{}); };
  failpoint("exec.start");
  if (const auto launch = std::exchange(st.options.launch, nullptr))
    st.command = launch(std::move(listener));
  else
    st.command = st.options.place->start(std::move(st.options.spec), std::move(listener));
  failpoint("exec.sent");
  // What is inside can stop a command before it is one.
  self->state.time.set(self, limits::start_patience);
}

void ask_for_output(process_pointer self, std::uint64_t number, const read_output& asked,
                    bool attached) {
  self->state.command->read(asked.offset, asked.max_bytes, attached,
                            [me = self->address(), number](runtime::log_chunk chunk) {
                              post_to<process_impl>(me, output_read{number, std::move(chunk)});
                            });
}

/// Whoever was attached before reads on without holding the command up.
void attach(process_pointer self, std::uint64_t reader) {
  auto& st = self->state;
  const auto before = std::exchange(st.reader, reader);
  if (before == 0)
    return;
  st.command->detach(); // What was asked as the attached one goes with that.
  for (const auto& [number, question] : st.questions)
    if (question.is_of(before))
      ask_for_output(self, number, question.asked, false);
}

process_impl::behavior_type process(process_pointer self,
                                    const std::shared_ptr<process_options>& options) {
  self->state.options = std::move(*options);
  if (const auto& note = self->state.options.note)
    self->state.timed_out = note->timed_out;
  return {
    [self](const read_output& asked) -> caf::result<output_chunk> {
      auto& st = self->state;
      if (st.never_ran)
        return to_caf(*st.never_ran);
      if (!st.command)
        return to_caf({errc::invalid_request, "it has not been started"});
      if (st.questions.size() >= max_questions)
        return to_caf({errc::limit_reached, "too many readers wait for this command"});
      auto reply = self->make_response_promise<output_chunk>();
      const auto number = ++st.last_question;
      if (asked.attached && asked.reader > st.reader)
        attach(self, asked.reader);
      st.questions.emplace(number, open_question{asked, reply});
      ask_for_output(self, number, asked, asked.attached && asked.reader == st.reader);
      return reply;
    },
    [self](detach_atom, std::uint64_t reader) {
      auto& st = self->state;
      if (!st.command)
        return;
      for (auto at = st.questions.begin(); at != st.questions.end();) {
        const auto each = at++;
        if (!each->second.is_of(reader))
          continue;
        each->second.reply.deliver(to_caf({errc::invalid_request, "its reader has gone"}));
        st.questions.erase(each);
      }
      if (st.reader != 0 && reader != st.reader) // None: it was awaited.
        return;
      st.command->detach();
      st.reader = 0; // One that was there before can be it again.
    },
    [self](start_atom) -> caf::result<process_actor> {
      self->state.starting = self->make_response_promise<process_actor>();
      start(self);
      return *self->state.starting;
    },
    [self](probe_atom) -> caf::result<bool> {
      self->state.probing = self->make_response_promise<bool>();
      start(self);
      return *self->state.probing;
    },
    [self](error& why) { self->state.lost = std::move(why); },
    [self](input_piece& piece) -> caf::result<input_progress> {
      auto& st = self->state;
      if (!st.command || st.never_ran)
        return input_progress{0, input_state::over};
      if (st.writing.size() >= max_questions)
        return to_caf({errc::limit_reached, "too many pieces wait for this command"});
      auto reply = self->make_response_promise<input_progress>();
      const auto number = ++st.last_question;
      st.writing.emplace(number, reply);
      st.command->write_input(std::move(piece),
                              [me = self->address(), number](input_progress progress) {
                                post_to<process_impl>(me, input_written{number, progress});
                              });
      return reply;
    },
    [self](measure_atom) -> caf::result<std::uint64_t, std::uint64_t> {
      auto& st = self->state;
      if (!st.command)
        return to_caf({errc::invalid_request, "it has not been started"});
      auto reply = self->make_response_promise<std::uint64_t, std::uint64_t>();
      const auto number = ++st.last_question;
      st.measuring.emplace(number, reply);
      st.command->measure([me = self->address(), number](runtime::log_extent extent) {
        post_to<process_impl>(me, output_measured{number, extent});
      });
      return reply;
    },
    [self](open_log_atom) -> caf::result<log_file> {
      auto& st = self->state;
      if (!st.command)
        return log_file{};
      auto reply = self->make_response_promise<log_file>();
      const auto number = ++st.last_question;
      st.opening.emplace(number, reply);
      st.command->open_log([me = self->address(), number](unique_fd file) {
        post_to<process_impl>(me,
                              log_opened{number, {std::make_shared<unique_fd>(std::move(file))}});
      });
      return reply;
    },
    [self](status_atom) {
      const auto& st = self->state;
      return process_status{(st.ended && st.complete) || st.end_told, as_end(st.how, st)};
    },
    [self](interrupt_atom) -> caf::result<caf::ok_atom> {
      auto& st = self->state;
      if (!st.started || st.complete)
        return to_caf({errc::invalid_request, "the command does not run"});
      auto reply = self->make_response_promise<caf::ok_atom>();
      st.interrupting.push_back(reply);
      if (st.interrupting.size() == 1) {
        st.command->signal(SIGTERM);
        self->delayed_send(self, limits::interrupt_grace, kill_atom::value);
      }
      return reply;
    },
    [self](const signal_terminal& what) {
      if (self->state.started && !self->state.ended)
        self->state.command->signal(what.number);
    },
    [self](const input_written& said) {
      if (auto open = self->state.writing.extract(said.question))
        open.mapped().deliver(said.progress);
    },
    [self](const output_measured& said) {
      if (auto open = self->state.measuring.extract(said.question))
        open.mapped().deliver(said.extent.begin, said.extent.end);
    },
    [self](const log_opened& said) {
      if (auto open = self->state.opening.extract(said.question))
        open.mapped().deliver(said.log);
    },
    [self](const command_started&) {
      failpoint("exec.started");
      auto& st = self->state;
      st.started = true;
      st.started_at = std::chrono::steady_clock::now();
      st.options.figures->command_runs();
      st.options.figures->took(exec_phase::start, st.started_at - st.asked_at);
      st.note("command.started");
      st.time.stop();
      if (st.starting)
        std::exchange(st.starting, std::nullopt)->deliver(caf::actor_cast<process_actor>(self));
      if (const auto left = time_left(st))
        self->state.time.set(self, *left);
    },
    [self](command_failed& said) {
      auto& st = self->state;
      st.options.figures->command_failed();
      log::info("command.not_started",
                {{"reason", said.why.message}, {"request", st.options.request}});
      if (st.starting)
        std::exchange(st.starting, std::nullopt)->deliver(to_caf(said.why));
      if (st.probing)
        std::exchange(st.probing, std::nullopt)->deliver(false);
      st.never_ran = std::move(said.why);
      st.over();
    },
    [self](const command_ended& said) {
      failpoint("exec.ended");
      auto& st = self->state;
      st.stop_running();
      st.ended = true;
      st.how = said.how;
      st.options.figures->took(exec_phase::exit, std::chrono::steady_clock::now() - st.started_at);
      st.note("command.ended");
      if (st.probing)
        std::exchange(st.probing, std::nullopt)->deliver(!said.how.lost && said.how.status == 0);
      // Others of an interrupted one's group have their time as well.
      if (st.killed)
        st.command->cut_output();
      else if (st.options.rules.with_its_shell && st.interrupting.empty() && !st.timed_out)
        st.command->leave_output();
    },
    [self](const output_complete&) {
      failpoint("exec.over");
      auto& st = self->state;
      if (!st.interrupting.empty() && !st.killed)
        st.command->signal(SIGKILL); // Whoever of its group has no output any more.
      st.over();
    },
    [self](output_read& said) {
      auto& st = self->state;
      auto open = st.questions.extract(said.question);
      if (open.empty())
        return;
      st.account_for(said.chunk);
      auto& reply = open.mapped().reply;
      if (said.chunk.reader_dropped)
        reply.deliver(to_caf({errc::deadline_exceeded, "nothing was taken for too long"}));
      else if (said.chunk.ended && said.chunk.ended->lost && said.chunk.frames.empty())
        reply.deliver(to_caf(st.lost));
      else {
        if (said.chunk.ended && said.chunk.ended->lost)
          said.chunk.ended.reset(); // First what there is; the next question hears of the loss.
        if (said.chunk.ended) {
          st.how = *said.chunk.ended;
          st.end_told = true;
        }
        reply.deliver(as_output(std::move(said.chunk), st));
      }
    },
    [self](expire_atom) {
      auto& st = self->state;
      // Ended, but a child in its group may hold the output open: that stream is what the time was
      // given for.
      if (!st.options.place)
        return;
      if (!st.started) {
        if (st.options.place->stands_still())
          return self->state.time.set(self,
                                      limits::start_patience); // It cannot, before that goes on.
        st.command->signal(SIGKILL);
        if (st.starting)
          std::exchange(st.starting, std::nullopt)
            ->deliver(to_caf({st.options.note ? errc::deadline_exceeded : errc::launch_failed,
                              "it did not come to life in time"}));
        if (st.probing)
          std::exchange(st.probing, std::nullopt)->deliver(false);
        return;
      }
      st.timed_out = true;
      if (auto& note = st.options.note) {
        note->timed_out = true; // Before anybody can see the effect.
        st.command->relabel(note->label());
      }
      if (st.options.rules.killed_at_timeout)
        return self->send(self, kill_atom::value);
      st.command->signal(SIGTERM);
      self->delayed_send(self, limits::kill_grace, kill_atom::value);
    },
    [self](kill_atom) {
      auto& st = self->state;
      if (!st.options.place)
        return;
      st.killed = true;
      st.command->signal(SIGKILL);
      // What left the group and still holds the pipes is not waited for.
      if (st.ended)
        st.command->cut_output();
    },
  };
}

} // namespace

started_process_actor spawn_process(caf::actor_system& system, process_options options) {
  return system.spawn(process, std::make_shared<process_options>(std::move(options)));
}

} // namespace insula::actors

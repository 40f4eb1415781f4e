#include "http/sandboxes/command_stream.hpp"

#include "actors/protocol/errors.hpp"

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include <utility>

namespace insula::http {

namespace {

using taken_atom = caf::atom_constant<caf::atom("taken")>;
using gone_atom = caf::atom_constant<caf::atom("gone")>;
using ping_atom = caf::atom_constant<caf::atom("ping")>;
using rest_atom = caf::atom_constant<caf::atom("rest")>;
using clock = std::chrono::steady_clock;

struct stream_state {
  static inline const char* name = "command_stream";

  stream_state() = default;
  stream_state(const stream_state&) = delete;
  stream_state& operator=(const stream_state&) = delete;
  /// However this reader ends: a command that has not ended must not wait for it.
  ~stream_state() {
    if (process && !job.background && !ended)
      caf::anon_send(process, detach_atom::value, reader);
  }

  command_words& words() { return *job.words; }

  command_job job;
  command_words::manner how;
  std::uint64_t reader = 0;              ///< Later ones have larger numbers.
  std::shared_ptr<answer_stream> stream; ///< Once the first event can be told.
  process_actor process;                 ///< Once the command runs.
  caf::actor_addr awaited;               ///< Sandbox or process: without it nothing more will come.
  std::uint64_t offset = 0;              ///< In the process' log: what is asked for next.
  std::optional<clock::time_point> rest_since; ///< Set: there is one.
  bool rest_watched = false;
  bool writing = false;  ///< The client has not taken the last events.
  bool asking = false;   ///< The process, for more.
  std::string held;      ///< To be written next.
  bool starting = false; ///< The sandbox has been asked to start the command.
  bool gone = false;     ///< The client has left.
  bool ended = false;    ///< The command's end has been read.
  bool complete = false; ///< The last event is known.
  second_tries tries;
};

using self_pointer = caf::stateful_actor<stream_state>*;

void find_sandbox(self_pointer self);
void ask_for_output(self_pointer self);

void note_time(const stream_state& st, request_times::stage reached) {
  if (const auto& times = st.job.command.context.times)
    times->reached(reached);
}

// ---- What goes out

/// One write at a time; what is read meanwhile waits, and then nothing more is read.
void write(self_pointer self, std::string events) {
  self->state.writing = true;
  self->state.stream->write(std::move(events),
                            [me = caf::actor_cast<caf::actor>(self)](bool taken) {
                              if (taken)
                                caf::anon_send(me, taken_atom::value);
                              else
                                caf::anon_send(me, gone_atom::value);
                            });
}

/// The last events, once those on their way have been taken: they would overtake them.
void finish(self_pointer self, std::string events) {
  auto& st = self->state;
  st.complete = true;
  st.held += events;
  if (st.writing)
    return;
  st.stream->finish(std::exchange(st.held, {}));
  self->quit();
}

void fail(self_pointer self, const error& why) {
  std::string events;
  self->state.words().failed(events, why);
  finish(self, std::move(events));
}

/// Without a stream.
void refuse(self_pointer self, question_stage at, const error& why) {
  auto& st = self->state;
  if (st.job.to)
    st.job.to->respond(st.words().refusal(at, why));
  self->quit();
}

/// False: there is nobody to tell.
bool open_stream(self_pointer self) {
  auto& st = self->state;
  st.stream = st.job.to->stream(st.words().head());
  if (!st.stream)
    return false;
  st.job.to.reset();
  st.stream->on_gone(
    [me = caf::actor_cast<caf::actor>(self)] { caf::anon_send(me, gone_atom::value); });
  if (auto filler = st.words().silence(); !filler.empty())
    st.stream->fill_silence(std::move(filler), st.job.with->heartbeat);
  return true;
}

// ---- Output

/// A prompt is to be seen before it is answered.
void watch_rest(self_pointer self, bool told_lines) {
  auto& st = self->state;
  if (st.how.rest_patience.count() == 0)
    return;
  const auto now = clock::now();
  if (!st.words().has_rest())
    st.rest_since.reset();
  else if (told_lines || !st.rest_since)
    st.rest_since = now;
  if (st.rest_since && !std::exchange(st.rest_watched, true))
    self->delayed_send(self, st.how.rest_patience - (now - *st.rest_since), rest_atom::value);
}

void tell_rest(self_pointer self) {
  auto& st = self->state;
  st.rest_watched = false;
  if (st.gone || st.complete || !st.rest_since)
    return;
  const auto now = clock::now();
  if (st.writing || !st.asking) // What the client takes slowly is no silence of the command.
    st.rest_since = now;
  if (now < *st.rest_since + st.how.rest_patience)
    return watch_rest(self, false);
  st.rest_since.reset();
  std::string events;
  st.words().rest(events);
  if (st.writing)
    st.held += events;
  else if (!events.empty())
    write(self, std::move(events));
}

void pass_on(self_pointer self, const output_chunk& chunk) {
  auto& st = self->state;
  st.asking = false;
  if (st.gone || st.complete)
    return;
  // A foreground stream is whole or it says that it is not: the node's disk refused part of it.
  if (chunk.lost_bytes > 0)
    return fail(self, {errc::io_failed, "output could not be kept"});
  const bool moved = chunk.next_offset > st.offset;
  st.offset = chunk.next_offset;
  std::string events;
  st.words().output(events, chunk.frames);
  if (chunk.ended) {
    st.ended = true;
    st.words().ended(events, *chunk.ended);
    return finish(self, std::move(events));
  }
  watch_rest(self, !events.empty());
  if (events.empty()) { // In the middle of a line, or of a character.
    if (!moved)         // It would answer so for ever.
      return fail(self, {errc::internal, "the log does not grow"});
    return ask_for_output(self);
  }
  if (st.writing) {
    st.held += events;
    return;
  }
  write(self, std::move(events));
  if (st.how.reads_ahead)
    ask_for_output(self); // While that is on its way.
}

void ask_for_output(self_pointer self) {
  auto& st = self->state;
  st.asking = true;
  self
    ->request(st.process, caf::infinite, read_output{st.offset, st.how.read_bytes, true, st.reader})
    .then([self](const output_chunk& chunk) { pass_on(self, chunk); },
          [self](const caf::error& failure) {
            const auto& now = self->state;
            if (now.gone || now.complete)
              return;
            const auto why = from_caf(failure);
            const bool server_goes = why.code == errc::node_unreachable || is_silence(failure);
            if (why.code == errc::deadline_exceeded || (server_goes && now.job.can_resume))
              return self->quit(); // The client took nothing for too long, or can ask the next
                                   // server: dropping the stream cuts the connection.
            fail(self, why.code == errc::sandbox_not_running || server_goes ? sandbox_ended : why);
          });
}

void taken(self_pointer self) {
  auto& st = self->state;
  st.writing = false;
  if (st.gone)
    return;
  if (st.complete)
    return finish(self, {});
  if (!st.held.empty())
    write(self, std::exchange(st.held, {}));
  if (!st.asking)
    ask_for_output(self);
}

void send_ping(self_pointer self) {
  auto& st = self->state;
  if (st.gone || st.complete)
    return;
  if (!st.writing) {
    std::string events;
    st.words().ping(events);
    write(self, std::move(events));
  }
  self->delayed_send(self, st.how.ping_pause, ping_atom::value);
}

// ---- Until it runs

/// The client has gone. Its command runs on, unless it is to end with it.
void leave(self_pointer self) {
  auto& st = self->state;
  st.gone = true;
  if (st.starting && !st.process)
    return; // Until it is known whether the command runs.
  if (st.job.ends_with_client && st.process && !st.ended) {
    interrupt_command order{st.job.command.idempotency.key, st.job.command.context};
    sandbox_question<interrupt_command, caf::ok_atom> asked{
      st.job.with->directory, st.job.sandbox, std::move(order), [](caf::ok_atom) {},
      [](question_stage, const error&) {}}; // It has ended meanwhile.
    asked.starts_it = false;
    ask_sandbox(*st.job.with, std::move(asked));
  }
  self->quit();
}

void started(self_pointer self, const sandbox_actor& box, const process_actor& process) {
  auto& st = self->state;
  note_time(st, request_times::stage::start);
  st.starting = false;
  st.process = process;
  if (st.gone || (!st.stream && !open_stream(self)))
    return leave(self);
  std::string events;
  st.words().begin(events);
  if (st.job.background) {
    st.words().left(events);
    return finish(self, std::move(events));
  }
  self->demonitor(box.address());
  self->monitor(process);
  st.awaited = process.address();
  if (!events.empty())
    write(self, std::move(events));
  if (st.how.ping_pause.count() > 0)
    self->delayed_send(self, st.how.ping_pause, ping_atom::value);
  ask_for_output(self);
}

void not_started(self_pointer self, const caf::error& failure) {
  const auto why = from_caf(failure);
  auto& st = self->state;
  st.starting = false;
  if (st.gone)
    return self->quit();
  const bool not_there =
    why.code == errc::sandbox_not_running || why.code == errc::node_unreachable;
  if (st.job.can_resume && (not_there || why.code == errc::result_gone))
    return self->quit(); // Asked again, it is told what has become of it, or may start it.
  if (why.code == errc::node_unreachable ? st.tries.take_other() : st.tries.take(failure)) {
    st.awaited = nullptr; // It ended after it had been found; its successor may do.
    return find_sandbox(self);
  }
  if (why.code == errc::request_known) {
    if (auto first = st.words().become(why); !first.empty()) {
      st.job.command.idempotency.key = std::move(first);
      return find_sandbox(self);
    }
  }
  if (!st.stream) {
    if (auto answer = st.words().start_refusal(why)) {
      st.job.to->respond(std::move(*answer));
      return self->quit();
    }
    if (!open_stream(self))
      return self->quit();
  }
  std::string events;
  st.words().begin(events);
  st.words().failed(events, why);
  finish(self, std::move(events));
}

void start(self_pointer self, const sandbox_actor& box) {
  auto& st = self->state;
  // A client writes to the command's input once it has the head, by another connection.
  const bool opens_early = st.how.opens_early && !st.job.command.input;
  if (opens_early && !st.stream && !open_stream(self))
    return self->quit(); // Found too late; that has been answered.
  if (!st.job.unstartable.empty())
    return fail(self, {errc::invalid_request, st.job.unstartable});
  st.starting = true;
  st.job.command.awaits_reader = !st.job.background;
  self->request(box, caf::infinite, st.job.command)
    .then([self, box](const process_actor& process) { started(self, box, process); },
          [self](const caf::error& failure) { not_started(self, failure); });
}

/// What has become of a command that may have been started before.
void known(self_pointer self, const sandbox_actor& box, const replay_status& answer) {
  auto& st = self->state;
  const auto from = st.words().resume(answer);
  if (!from)
    return refuse(self, question_stage::ask, from.reason());
  if (!answer.process)
    return start(self, box);
  if (!open_stream(self))
    return self->quit();
  st.offset = *from;
  started(self, box, answer.process);
}

void found(self_pointer self, const sandbox_actor& box) {
  auto& st = self->state;
  note_time(st, request_times::stage::queue);
  self->monitor(box);
  st.awaited = box.address();
  if (!st.job.can_resume || st.stream)
    return start(self, box);
  const auto& command = st.job.command;
  self
    ->request(box, caf::infinite,
              find_result{command.idempotency, command.context, st.words().is_at_beginning()})
    .then([self, box](const replay_status& answer) { known(self, box, answer); },
          [self](const caf::error& failure) {
            auto& state = self->state;
            if (!state.tries.take(failure))
              return refuse(self, question_stage::ask, from_caf(failure));
            state.awaited = nullptr;
            find_sandbox(self);
          });
}

void find_sandbox(self_pointer self) {
  const auto& job = self->state.job;
  const auto then = [self](const sandbox_actor& box) { found(self, box); };
  const auto otherwise = [self](const caf::error& failure) {
    const auto why = from_caf(failure);
    const auto& st = self->state;
    if (!st.stream)
      return refuse(self, question_stage::find, why);
    st.job.can_resume ? self->quit() : fail(self, why);
  };
  const auto& context = job.command.context;
  if (job.starts_sandbox)
    self->request(job.with->directory, caf::infinite, find_atom::value, job.sandbox, context)
      .then(then, otherwise);
  else
    self->request(job.with->directory, caf::infinite, reach_atom::value, job.sandbox, context)
      .then(then, otherwise);
}

caf::behavior command_stream(self_pointer self, const std::shared_ptr<command_job>& job) {
  auto& st = self->state;
  st.job = std::move(*job);
  st.how = st.words().how();
  st.reader = self->id();
  self->set_down_handler(
    [self](const caf::down_msg& gone) { self->send(self, ended_atom::value, gone.source); });
  find_sandbox(self);
  return {
    [self](taken_atom) { taken(self); },
    [self](gone_atom) {
      if (!self->state.gone)
        leave(self);
    },
    [self](ping_atom) { send_ping(self); },
    [self](rest_atom) { tell_rest(self); },
    [self](ended_atom, const caf::actor_addr& who) {
      const auto& now = self->state;
      if (who != now.awaited || now.complete)
        return; // The stale one of two, or all has been read.
      if (now.gone || (now.job.can_resume && now.stream))
        self->quit();
      else if (now.stream)
        fail(self, sandbox_ended);
      else
        refuse(self, question_stage::ask, sandbox_ended);
    },
  };
}

} // namespace

void run_command(command_job job) {
  job.to->answer_within(
    job.patience, job.words->refusal(question_stage::find, {errc::deadline_exceeded,
                                                            "the sandbox was not ready in time"}));
  auto& system = *job.with->system;
  system.spawn(command_stream, std::make_shared<command_job>(std::move(job)));
}

} // namespace insula::http

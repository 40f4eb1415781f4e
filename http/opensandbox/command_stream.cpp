#include "actors/protocol/errors.hpp"
#include "base/limits.hpp"
#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/opensandbox/lines.hpp"
#include "http/sandboxes/ask_sandbox.hpp"

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include <chrono>
#include <optional>

namespace insula::http::opensandbox {

namespace {

using taken_atom = caf::atom_constant<caf::atom("taken")>;
using gone_atom = caf::atom_constant<caf::atom("gone")>;
using ping_atom = caf::atom_constant<caf::atom("ping")>;
using rest_atom = caf::atom_constant<caf::atom("rest")>;

constexpr std::uint32_t read_bytes = 256 * 1024;
constexpr std::chrono::seconds ping_pause{3};
/// For a line to be ended, before what there is of it is told: a prompt never is.
constexpr std::chrono::milliseconds rest_patience{200};

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

struct stream_state {
  static inline const char* name = "execd_stream";

  stream_state() = default;
  stream_state(const stream_state&) = delete;
  stream_state& operator=(const stream_state&) = delete;
  /// However this reader ends: a command that has not ended must not wait for it.
  ~stream_state() {
    if (process && !job.background && !complete)
      caf::anon_send(process, detach_atom::value, reader);
  }

  command_job job;
  std::uint64_t reader = 0;
  std::shared_ptr<answer_stream> stream; ///< Set once the command runs, or could not.
  process_actor process;
  caf::actor_addr awaited; ///< Sandbox or process: without it nothing more will come.
  std::uint64_t offset = 0;
  std::int64_t began_ms = 0;
  std::int64_t read_ms = 0; ///< What is told now was read then.
  line_splitter out, err;
  std::optional<std::chrono::steady_clock::time_point> rest_since; ///< Set: there is one.
  bool rest_watched = false;
  bool writing = false;
  bool asking = false; ///< The process, for more.
  std::string held;    ///< To be written next.
  bool starting = false;
  bool complete = false;
  bool gone = false;
  bool may_repeat = true;
};

using self_pointer = caf::stateful_actor<stream_state>*;

void find_sandbox(self_pointer self);
void ask_for_output(self_pointer self);

void append_line(std::string& events, const stream_state& st, std::string_view type,
                 std::string_view line, std::string_view end) {
  if (st.job.keeps_ends)
    append_line_event(events, type, line, end, st.read_ms);
  else
    append_line_event(events, type, line, line.empty() ? "\n" : "", st.read_ms);
}

void append_output(std::string& events, stream_state& st, const output_frame& frame) {
  const bool is_out = st.job.merges || frame.stream == output_stream::out;
  (is_out ? st.out : st.err).feed(frame.bytes, [&](std::string_view line, std::string_view end) {
    append_line(events, st, is_out ? "stdout" : "stderr", line, end);
  });
}

/// Of a line that has not ended. `for_good`: nothing follows it.
void append_rest(std::string& events, stream_state& st, bool for_good) {
  for (auto* each : {&st.out, &st.err}) {
    const auto tell = [&](std::string_view line, std::string_view end) {
      append_line(events, st, each == &st.out ? "stdout" : "stderr", line, end);
    };
    for_good ? each->finish(tell) : each->flush(tell);
  }
}

/// The last event, once what is on its way has been taken: it would overtake that.
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
  auto& st = self->state;
  std::string events;
  append_rest(events, st, true);
  const auto words = why.code == errc::internal ? std::string{"internal error"} : why.message;
  finish(self, events + write_error_event(words, words, now_ms()));
}

std::string last_event(const stream_state& st, const process_end& end) {
  const auto how = outcome_of(end);
  return how.words.empty() ? write_complete_event(now_ms() - st.began_ms, now_ms())
                           : write_error_event(how.value, how.words, now_ms());
}

/// A prompt is to be seen before it is answered.
void watch_rest(self_pointer self, bool told_lines) {
  auto& st = self->state;
  if (!st.job.tells_rest)
    return;
  const auto now = std::chrono::steady_clock::now();
  if (!st.out.has_rest() && !st.err.has_rest())
    st.rest_since.reset();
  else if (told_lines || !st.rest_since)
    st.rest_since = now;
  if (st.rest_since && !std::exchange(st.rest_watched, true))
    self->delayed_send(self, rest_patience - (now - *st.rest_since), rest_atom::value);
}

/// One at a time; what is read meanwhile waits, and then nothing more is read.
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

void pass_on(self_pointer self, const output_chunk& chunk) {
  auto& st = self->state;
  st.asking = false;
  if (st.gone)
    return;
  if (chunk.lost_bytes > 0)
    return fail(self, {errc::io_failed, "output could not be kept"});
  st.offset = chunk.next_offset;
  st.read_ms = now_ms();
  std::string events;
  std::size_t bytes = 0;
  for (const auto& each : chunk.frames)
    bytes += each.bytes.size();
  events.reserve(2 * bytes);
  for (const auto& each : chunk.frames)
    append_output(events, st, each);
  if (chunk.ended) {
    append_rest(events, st, true);
    return finish(self, std::move(events) + last_event(st, *chunk.ended));
  }
  watch_rest(self, !events.empty());
  if (events.empty()) // In mid-line.
    return ask_for_output(self);
  if (st.writing) {
    st.held += events;
    return;
  }
  write(self, std::move(events));
  ask_for_output(self); // While that is on its way.
}

void ask_for_output(self_pointer self) {
  auto& st = self->state;
  st.asking = true;
  self->request(st.process, caf::infinite, read_output{st.offset, read_bytes, true, st.reader})
    .then([self](const output_chunk& chunk) { pass_on(self, chunk); },
          [self](const caf::error& failure) {
            if (self->state.gone)
              return;
            const auto why = from_caf(failure);
            if (why.code == errc::deadline_exceeded)
              return self->quit(); // It took nothing for too long: its connection is cut.
            fail(self,
                 why.code == errc::node_unreachable || is_silence(failure) ? sandbox_ended : why);
          });
}

/// The head and the first event leave at once. False: there is nobody to tell.
bool open_stream(self_pointer self) {
  auto& st = self->state;
  st.stream = st.job.to->stream(
    {"text/event-stream", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
  if (!st.stream)
    return false;
  st.job.to.reset();
  st.began_ms = now_ms();
  return true;
}

std::string first_events(const stream_state& st) {
  return write_text_event("init", st.job.told_id, st.began_ms) +
         write_text_event("ping", "pong", st.began_ms);
}

/// The client has gone. Its command runs on, unless it is to end with it.
void leave(self_pointer self) {
  const auto& st = self->state;
  if (st.job.ends_with_client && st.process && !st.complete) {
    interrupt_command order{st.job.command.once.key, st.job.command.context};
    sandbox_question<interrupt_command, caf::ok_atom> question{
      st.job.with->directory, st.job.sandbox, std::move(order), [](caf::ok_atom) {},
      [](question_stage, const error&) {}}; // It has ended meanwhile.
    question.starts_it = false;
    ask_sandbox(*st.job.with, std::move(question));
  }
  self->quit();
}

void started(self_pointer self, const process_actor& process) {
  auto& st = self->state;
  st.starting = false;
  st.process = process;
  if (st.gone || !open_stream(self))
    return leave(self);
  if (st.job.background)
    return finish(self, first_events(st) + write_complete_event(0, st.began_ms));
  st.stream->on_gone(
    [me = caf::actor_cast<caf::actor>(self)] { caf::anon_send(me, gone_atom::value); });
  self->monitor(process);
  st.awaited = process.address();
  write(self, first_events(st));
  self->delayed_send(self, ping_pause, ping_atom::value);
  ask_for_output(self);
}

/// The client's directory is looked at before anything is told; what else does not start is told as
/// an event.
void not_started(self_pointer self, const error& why) {
  auto& st = self->state;
  st.starting = false;
  const bool not_there =
    why.code == errc::sandbox_not_running || why.code == errc::node_unreachable;
  if (not_there && std::exchange(st.may_repeat, false)) {
    st.awaited = nullptr;
    return find_sandbox(self);
  }
  if (why.code != errc::launch_failed) {
    const bool no_session = why.code == errc::not_found && st.job.command.only_if_session;
    st.job.to->respond(no_session ? execd_failure(404, "CONTEXT_NOT_FOUND", why.message)
                                  : execd_failure(why));
    return self->quit();
  }
  if (st.job.cwd_named && why.message.starts_with("entering the working directory")) {
    st.job.to->respond(execd_failure(400, "INVALID_REQUEST_BODY", why.message));
    return self->quit();
  }
  if (!open_stream(self))
    return self->quit();
  finish(self, first_events(st) + write_error_event(why.message, why.message, now_ms()));
}

void refuse(self_pointer self, const error& why) {
  if (const auto to = self->state.job.to)
    to->respond(execd_failure(why));
  self->quit();
}

void found(self_pointer self, const sandbox_actor& box) {
  auto& st = self->state;
  self->monitor(box);
  st.awaited = box.address();
  st.starting = true;
  self->request(box, caf::infinite, st.job.command)
    .then(
      [self, box](const process_actor& process) {
        self->demonitor(box.address());
        started(self, process);
      },
      [self](const caf::error& failure) { not_started(self, from_caf(failure)); });
}

void find_sandbox(self_pointer self) {
  const auto& job = self->state.job;
  const auto then = [self](const sandbox_actor& box) { found(self, box); };
  const auto otherwise = [self](const caf::error& failure) { refuse(self, from_caf(failure)); };
  const auto& context = job.command.context;
  if (job.makes_sandbox)
    self->request(job.with->directory, caf::infinite, find_atom::value, job.sandbox, context)
      .then(then, otherwise);
  else
    self->request(job.with->directory, caf::infinite, reach_atom::value, job.sandbox, context)
      .then(then, otherwise);
}

caf::behavior execd_stream(self_pointer self, const std::shared_ptr<command_job>& job) {
  self->state.job = std::move(*job);
  self->state.reader = self->id();
  self->set_down_handler(
    [self](const caf::down_msg& gone) { self->send(self, ended_atom::value, gone.source); });
  find_sandbox(self);
  return {
    [self](taken_atom) {
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
    },
    [self](gone_atom) {
      auto& st = self->state;
      st.gone = true;
      if (!st.starting)
        leave(self); // Else once it is known whether the command runs.
    },
    [self](ping_atom) {
      auto& st = self->state;
      if (st.gone || st.complete)
        return;
      if (!st.writing)
        write(self, write_text_event("ping", "pong", now_ms()));
      self->delayed_send(self, ping_pause, ping_atom::value);
    },
    [self](rest_atom) {
      auto& st = self->state;
      st.rest_watched = false;
      if (st.gone || st.complete || !st.rest_since)
        return;
      const auto now = std::chrono::steady_clock::now();
      if (st.writing || !st.asking) // What the client takes slowly is no silence of the command.
        st.rest_since = now;
      if (now < *st.rest_since + rest_patience)
        return watch_rest(self, false);
      st.rest_since.reset();
      std::string events;
      append_rest(events, st, false);
      if (st.writing)
        st.held += events;
      else if (!events.empty())
        write(self, std::move(events));
    },
    [self](ended_atom, const caf::actor_addr& who) {
      auto& st = self->state;
      if (who != st.awaited || st.complete)
        return;
      if (st.stream && !st.gone)
        fail(self, sandbox_ended);
      else
        refuse(self, sandbox_ended);
    },
  };
}

} // namespace

void run_command(command_job job) {
  // In a session it has to wait for its turn, which clients are patient with.
  constexpr std::chrono::hours turn_patience{24};
  job.to->answer_within(job.command.session.empty() ? std::chrono::milliseconds{sandbox_patience}
                                                    : std::chrono::milliseconds{turn_patience},
                        execd_failure(500, "RUNTIME_ERROR", "the sandbox was not ready in time"));
  auto& system = *job.with->system;
  system.spawn(execd_stream, std::make_shared<command_job>(std::move(job)));
}

} // namespace insula::http::opensandbox

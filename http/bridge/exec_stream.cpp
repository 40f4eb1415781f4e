#include "http/bridge/exec_stream.hpp"

#include "actors/protocol/errors.hpp"
#include "base/size_text.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/bridge/error_response.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/text/event_stream.hpp"
#include "http/text/utf8.hpp"

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

namespace insula::http::bridge {

namespace {

using taken_atom = caf::atom_constant<caf::atom("taken")>;
using gone_atom = caf::atom_constant<caf::atom("gone")>;

/// How much of the log is asked for at once; as base64 it is a third more.
constexpr std::uint32_t read_bytes = 128 * 1024;

/// As `timeout` and every shell report it.
constexpr int timed_out_code = 124;

constexpr std::string_view could_not_start = "Command execution failed";

struct exec_state {
  static inline const char* name = "exec_stream";

  exec_state() = default;
  exec_state(const exec_state&) = delete;
  exec_state& operator=(const exec_state&) = delete;
  /// However this reader ends: a command that has not ended must not wait for it.
  ~exec_state() {
    if (process && !complete)
      caf::anon_send(process, detach_atom::value, reader);
  }

  /// The client can ask again, and go on where it was.
  bool once() const { return !job.command.once.key.empty(); }

  /// Of what has been put into events, for a client that can go on from there.
  std::string id() const {
    return once() ? stream_position{passed, out.held(), err.held(), end_told}.text()
                  : std::string{};
  }

  exec_job job;
  std::uint64_t reader = 0;              ///< Later ones have larger numbers.
  std::shared_ptr<answer_stream> stream; ///< Set once the sandbox has been found.
  process_actor process;                 ///< Set once the command runs.
  caf::actor_addr awaited;               ///< Sandbox or process: without it nothing more will come.
  std::uint64_t offset = 0;              ///< In the process' log: what is asked for next.
  std::uint64_t passed = 0;              ///< What has gone into events, or is held back.
  bool end_told = false;                 ///< Of the end, all but the exit code.
  utf8_holdback out;
  utf8_holdback err;
  bool starting = false; ///< The sandbox has been asked to start the command.
  bool gone = false;     ///< The client has left.
  bool complete = false; ///< The command's end has been read.
  bool may_repeat = true;
};

void note_time(const exec_state& st, request_times::stage reached) {
  if (const auto& times = st.job.command.context.times)
    times->reached(reached);
}

using self_pointer = caf::stateful_actor<exec_state>*;

std::string_view name_of(output_stream stream) {
  switch (stream) {
    case output_stream::out: return "stdout";
    case output_stream::err: return "stderr";
  }
  return "stdout";
}

void append_output(std::string& events, const exec_state& st, output_stream stream,
                   std::string_view bytes) {
  if (!bytes.empty())
    sse::append_base64_event(events, name_of(stream), bytes, st.id());
}

/// Frames of one stream that follow each other become one event.
void append_frames(std::string& events, exec_state& st, const std::vector<output_frame>& frames) {
  for (std::size_t i = 0; i < frames.size();) {
    const auto stream = frames[i].stream;
    std::string bytes = frames[i].bytes;
    for (++i; i < frames.size() && frames[i].stream == stream; ++i)
      bytes += frames[i].bytes;
    st.passed = frames[i - 1].end;
    auto& holdback = stream == output_stream::out ? st.out : st.err;
    const auto whole = holdback.feed(std::move(bytes));
    append_output(events, st, stream, whole);
  }
}

/// Said where people and programs look when a command has failed; the exit code is 137 in any case.
std::string out_of_memory_text(const process_end& end) {
  return end.memory_bytes == 0 ? "Command killed: out of memory\n"
                               : "Command killed: out of memory (the sandbox's limit is " +
                                   size_text(end.memory_bytes) + ")\n";
}

void append_held(std::string& events, exec_state& st) {
  const auto out = st.out.flush();
  append_output(events, st, output_stream::out, out);
  const auto err = st.err.flush();
  append_output(events, st, output_stream::err, err);
}

/// What is said of some ends besides the exit code.
std::string end_text(const exec_state& st, const process_end& end) {
  if (end.timed_out)
    return "Command timed out after " +
           (st.job.timeout_text.empty() ? std::to_string(end.timeout_ms) : st.job.timeout_text) +
           "ms\n";
  return end.out_of_memory ? out_of_memory_text(end) : std::string{};
}

void append_end(std::string& events, exec_state& st, const process_end& end) {
  append_held(events, st);
  const auto text = end_text(st, end);
  if (!text.empty() && !std::exchange(st.end_told, true))
    append_output(events, st, output_stream::err, text);
  sse::append_event(events, "exit", write_exit_code(end.timed_out ? timed_out_code : end.exit_code),
                    st.id());
}

/// The terminal event of a stream that does not end with the command's end.
void fail(self_pointer self, std::string_view message, std::string_view code,
          std::string_view reason = {}) {
  auto& st = self->state;
  std::string events;
  append_held(events, st);
  sse::append_event(events, "error", json::write_error(message, code, reason), st.id());
  st.stream->finish(std::move(events));
  self->quit();
}

void fail(self_pointer self, const error& why) {
  switch (why.code) {
    case errc::launch_failed:
    case errc::invalid_request: return fail(self, could_not_start, "exec_error", why.message);
    case errc::session_ended:
    case errc::node_unreachable:
    case errc::sandbox_not_running: return fail(self, why.message, "exec_error");
    default: return fail(self, "exec failed: " + why.message, "exec_transport_error");
  }
}

void ask_for_output(self_pointer self);

void pass_on(self_pointer self, const output_chunk& chunk) {
  auto& st = self->state;
  if (st.gone)
    return;
  // A foreground stream is whole or it says that it is not: the node's disk refused part of it.
  if (chunk.lost_bytes > 0)
    return fail(self, error{errc::io_failed, "output could not be kept"});
  const bool moved = chunk.next_offset > st.offset;
  st.offset = chunk.next_offset;
  std::string events;
  append_frames(events, st, chunk.frames);
  if (chunk.ended) {
    st.complete = true;
    append_end(events, st, *chunk.ended);
    st.stream->finish(std::move(events));
    return self->quit();
  }
  if (!events.empty()) {
    auto me = caf::actor_cast<caf::actor>(self);
    return st.stream->write(std::move(events), [me](bool taken) {
      if (taken)
        caf::anon_send(me, taken_atom::value);
      else
        caf::anon_send(me, gone_atom::value);
    });
  }
  if (!moved) // It would answer so for ever.
    return fail(self, error{errc::internal, "the log does not grow"});
  ask_for_output(self);
}

void ask_for_output(self_pointer self) {
  auto& st = self->state;
  self->request(st.process, caf::infinite, read_output{st.offset, read_bytes, true, st.reader})
    .then([self](const output_chunk& chunk) { pass_on(self, chunk); },
          [self](const caf::error& failure) {
            if (self->state.gone)
              return;
            const auto why = from_caf(failure);
            const bool server_goes = why.code == errc::node_unreachable || is_silence(failure);
            if (why.code != errc::deadline_exceeded && !(server_goes && self->state.once()))
              return fail(self, why.code == errc::sandbox_not_running || server_goes ? sandbox_ended
                                                                                     : why);
            self->quit(); // The client took nothing for too long, or can ask the next server:
                          // dropping the stream cuts the connection.
          });
}

void leave(self_pointer self) {
  auto& st = self->state;
  st.gone = true;
  if (st.process || !st.starting)
    self->quit(); // Else once it is known whether the command runs.
}

void started(self_pointer self, const sandbox_actor& box, const process_actor& process) {
  auto& st = self->state;
  note_time(st, request_times::stage::start);
  st.process = process;
  if (st.gone)
    return leave(self);
  self->demonitor(box.address());
  self->monitor(process);
  st.awaited = process.address();
  ask_for_output(self);
}

void find_sandbox(self_pointer self);

void not_started(self_pointer self, const error& why) {
  auto& st = self->state;
  if (st.gone)
    return self->quit();
  st.starting = false;
  const bool not_there =
    why.code == errc::sandbox_not_running || why.code == errc::node_unreachable;
  if (st.once() && (not_there || why.code == errc::result_gone))
    return self->quit(); // Asked again, it is told what has become of it, or may start it.
  if (!not_there || !std::exchange(st.may_repeat, false))
    return fail(self, why);
  st.awaited = nullptr; // It ended after it had been found; its successor may do.
  find_sandbox(self);
}

/// Whoever asks where the time goes gets the head with the first event: then it is known.
void open_stream(self_pointer self) {
  auto& st = self->state;
  const bool at_once = st.job.command.context.times == nullptr;
  st.stream = st.job.to->stream({"text/event-stream", {{"Cache-Control", "no-cache"}}, at_once});
  if (!st.stream)
    return;
  st.job.to.reset();
  st.stream->on_gone(
    [me = caf::actor_cast<caf::actor>(self)] { caf::anon_send(me, gone_atom::value); });
  st.stream->fill_silence(std::string{sse::heartbeat}, st.job.with->heartbeat);
}

void start(self_pointer self, const sandbox_actor& box) {
  auto& st = self->state;
  if (!st.stream)
    open_stream(self);
  if (!st.stream)
    return self->quit(); // Found too late; that has been answered.
  if (!st.job.unstartable.empty())
    return fail(self, could_not_start, "exec_error", st.job.unstartable);
  st.starting = true;
  self->request(box, caf::infinite, st.job.command)
    .then([self, box](const process_actor& process) { started(self, box, process); },
          [self](const caf::error& failure) { not_started(self, from_caf(failure)); });
}

void refuse(self_pointer self, const error& why) {
  self->state.job.to->respond(error_response(step::exec, why));
  self->quit();
}

/// Whether there is nothing that the client has had of it.
bool begins(const exec_state& st) {
  return !st.job.from || *st.job.from == stream_position{};
}

/// What has become of a command that runs once.
void known(self_pointer self, const sandbox_actor& box, const known_result& answer) {
  static const error gone{errc::result_gone,
                          "what follows this Last-Event-ID is not there any more"};
  auto& st = self->state;
  if (!answer.process) {
    if (!begins(st))
      return refuse(self, gone);
    return start(self, box);
  }
  const auto from = st.job.from.value_or(stream_position{});
  if (from.offset < answer.begin)
    return refuse(self, gone);
  if (from.offset > answer.end)
    return refuse(self, {errc::invalid_request, "Last-Event-ID is none of this stream's"});
  open_stream(self);
  if (!st.stream)
    return self->quit();
  st.offset = st.passed = from.offset;
  st.out.hold(from.out);
  st.err.hold(from.err);
  st.end_told = from.end_told;
  started(self, box, answer.process);
}

void found(self_pointer self, const sandbox_actor& box) {
  auto& st = self->state;
  note_time(st, request_times::stage::queue);
  self->monitor(box);
  st.awaited = box.address();
  if (!st.once() || st.stream)
    return start(self, box);
  self
    ->request(box, caf::infinite,
              find_result{st.job.command.once, st.job.command.context, begins(st)})
    .then([self, box](const known_result& answer) { known(self, box, answer); },
          [self](const caf::error& failure) {
            const auto why = from_caf(failure);
            auto& state = self->state;
            if (why.code != errc::sandbox_not_running || !std::exchange(state.may_repeat, false))
              return refuse(self, why);
            state.awaited = nullptr;
            find_sandbox(self);
          });
}

void find_sandbox(self_pointer self) {
  auto& st = self->state;
  self
    ->request(st.job.with->directory, caf::infinite, find_atom::value, st.job.id,
              st.job.command.context)
    .then([self](const sandbox_actor& box) { found(self, box); },
          [self](const caf::error& failure) {
            const auto why = from_caf(failure);
            if (self->state.stream)
              return self->state.once() ? self->quit() : fail(self, why);
            self->state.job.to->respond(error_response(step::find_sandbox, why));
            self->quit();
          });
}

caf::behavior exec_stream(self_pointer self, const std::shared_ptr<exec_job>& job) {
  self->state.job = std::move(*job);
  self->state.reader = self->id();
  self->set_down_handler(
    [self](const caf::down_msg& gone) { self->send(self, ended_atom::value, gone.source); });
  find_sandbox(self);
  return {
    [self](taken_atom) {
      if (!self->state.gone)
        ask_for_output(self);
    },
    [self](gone_atom) {
      if (!self->state.gone)
        leave(self);
    },
    [self](ended_atom, const caf::actor_addr& who) {
      if (who != self->state.awaited)
        return; // The stale one of two.
      if (self->state.gone || (self->state.once() && self->state.stream))
        self->quit();
      else if (self->state.stream)
        fail(self, sandbox_ended);
      else
        refuse(self, sandbox_ended);
    },
  };
}

} // namespace

void start_exec_stream(exec_job job) {
  job.to->answer_within(sandbox_patience,
                        error_response(step::find_sandbox, {errc::deadline_exceeded,
                                                            "the sandbox was not ready in time"}));
  auto& system = *job.with->system;
  system.spawn(exec_stream, std::make_shared<exec_job>(std::move(job)));
}

} // namespace insula::http::bridge

#include "http/sandboxes/terminal_stream.hpp"

#include "base/limits.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/text/utf8.hpp"

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include <algorithm>

namespace insula::http {

namespace {

using taken_atom = caf::atom_constant<caf::atom("taken")>;
using gone_atom = caf::atom_constant<caf::atom("gone")>;
using told_atom = caf::atom_constant<caf::atom("told")>;
using late_atom = caf::atom_constant<caf::atom("late")>;

/// How much output is asked for at once.
constexpr std::uint32_t read_bytes = 64 * 1024;

/// Beyond this much that the terminal has not taken, the client is not read from.
constexpr std::size_t typed_ahead_bytes = 64 * 1024;

/// How long a terminal of one client waits for that client to take output.
constexpr std::chrono::minutes client_patience{60};

/// A close's words; public.
constexpr std::string_view taken_over = "TAKEN_OVER";

struct opened {
  std::shared_ptr<web_socket> socket;
};

} // namespace
} // namespace insula::http

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::http::opened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::http::web_socket_message)

namespace insula::http {

namespace {

struct stream_state {
  static inline const char* name = "terminal_stream";
  terminal_job job;
  std::shared_ptr<web_socket> socket; ///< Set once it is open.
  terminal_actor terminal;
  caf::actor_addr awaited;      ///< Sandbox or terminal: without it nothing more will come.
  std::uint64_t offset = 0;     ///< In the terminal's log.
  std::uint64_t replay_end = 0; ///< Where what was there before ends.
  bool ready = false;           ///< That has been sent, and the word that it was all.
  utf8_holdback text;
  std::size_t typed_ahead = 0; ///< What the terminal has not taken counts for so many bytes.
  bool receiving = false;      ///< The client has been asked for a message.
  bool telling = false;        ///< It is being told of what it has said.
  bool taken_over = false;     ///< Before it was open.
  bool awaits_start = false;   ///< The next message says what is started.
  std::uint64_t patience = 0;  ///< The number of what is waited for, while that has a limit.
  bool told_end = false;       ///< The client knows how it ends.
  bool over = false;
  second_tries tries;
};

using self_pointer = caf::stateful_actor<stream_state>*;

void close(self_pointer self, close_reason why, std::string_view words = {}) {
  auto& st = self->state;
  if (std::exchange(st.over, true))
    return;
  if (auto last = st.told_end ? std::nullopt : st.job.words->last_words())
    st.socket->send(std::move(*last));
  st.socket->close(why, words);
  self->quit();
}

void fail(self_pointer self, close_reason why, std::string_view words) {
  auto& st = self->state;
  if (!st.over)
    st.socket->send(st.job.words->failed(words));
  st.told_end = true;
  close(self, why, words);
}

/// An end that is nobody's wish.
void fail(self_pointer self, const error& why) {
  if (why.code == errc::sandbox_not_running)
    return fail(self, close_reason::going_away, why.message);
  close(self, close_reason::internal_error, "Internal error");
}

// ---- What the terminal prints ----

void ask_for_output(self_pointer self);

/// More is asked for when that has been taken.
void send_and_go_on(self_pointer self, web_socket_message message) {
  self->state.socket->send(std::move(message),
                           [me = caf::actor_cast<caf::actor>(self)](bool taken) {
                             if (taken)
                               caf::anon_send(me, taken_atom::value);
                           });
}

/// What was there before has been sent. None: the client is not told.
std::optional<web_socket_message> become_ready(self_pointer self) {
  self->state.ready = true;
  return self->state.job.words->ready();
}

void tell_ready(self_pointer self) {
  if (auto message = become_ready(self))
    self->state.socket->send(std::move(*message));
}

void pass_on(self_pointer self, const output_chunk& chunk) {
  auto& st = self->state;
  if (st.over)
    return;
  // What it had not taken is gone. When it comes again it gets what there is.
  if (chunk.lost_bytes > 0 && st.ready)
    return close(self, close_reason::try_again_later, "too slow for the output");
  st.offset = chunk.next_offset;
  std::string bytes;
  for (const auto& frame : chunk.frames)
    bytes += frame.bytes;
  const auto& words = *st.job.words;
  const bool whole = words.whole_characters();
  if (st.ready && whole)
    bytes = st.text.feed(std::move(bytes));
  if (chunk.ended && whole)
    bytes += st.text.flush();
  const bool any = !bytes.empty();
  const auto from = chunk.next_offset - bytes.size();
  std::optional<web_socket_message> message;
  if (any)
    message = st.ready ? words.printed(std::move(bytes)) : words.replayed(from, std::move(bytes));
  if (chunk.ended) {
    if (message)
      st.socket->send(std::move(*message));
    if (!st.ready)
      tell_ready(self);
    st.socket->send(words.ended(*chunk.ended));
    st.told_end = true;
    return close(self, close_reason::normal, words.farewell());
  }
  if (message)
    send_and_go_on(self, std::move(*message));
  if (!st.ready && st.offset >= st.replay_end)
    tell_ready(self);
  if (!any)
    ask_for_output(self); // A character's beginning; the rest will come.
}

void ask_for_output(self_pointer self) {
  auto& st = self->state;
  const auto most = st.ready ? read_bytes
                             : static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                 st.replay_end - st.offset, limits::terminal_log_bytes));
  self->request(st.terminal, caf::infinite, read_output{st.offset, most, false})
    .then([self](const output_chunk& chunk) { pass_on(self, chunk); },
          [self](const caf::error& failure) {
            if (!self->state.over)
              fail(self, from_caf(failure));
          });
}

// ---- What the client says ----

void receive(self_pointer self) {
  auto& st = self->state;
  if (st.over || st.telling || st.typed_ahead > typed_ahead_bytes ||
      std::exchange(st.receiving, true))
    return;
  st.socket->receive([me = caf::actor_cast<caf::actor>(self)](web_socket_message message) {
    caf::anon_send(me, std::move(message));
  });
}

/// One answer at a time: who wants many has to hear them.
void tell(self_pointer self, web_socket_message answer) {
  auto& st = self->state;
  st.telling = true;
  st.socket->send(std::move(answer), [me = caf::actor_cast<caf::actor>(self)](bool) {
    caf::anon_send(me, told_atom::value);
  });
}

void type(self_pointer self, std::string bytes) {
  auto& st = self->state;
  const auto count = bytes.size() + limits::waiting_input_cost;
  st.typed_ahead += count;
  self->request(st.terminal, caf::infinite, write_input{std::move(bytes)})
    .then(
      [self, count](caf::ok_atom) {
        self->state.typed_ahead -= count;
        receive(self);
      },
      [self](const caf::error& failure) {
        const auto why = from_caf(failure);
        if (why.code == errc::limit_reached)
          close(self, close_reason::try_again_later, why.message);
        // Else it has ended, which its output says.
      });
}

void do_what_is_said(self_pointer self, web_socket_message message) {
  const auto& st = self->state;
  auto wish = st.job.words->read(std::move(message));
  if (wish.size)
    self->send(st.terminal, *wish.size);
  if (wish.signal)
    self->send(st.terminal, *wish.signal);
  if (!wish.typed.empty())
    type(self, std::move(wish.typed));
  if (wish.answer)
    tell(self, std::move(*wish.answer));
}

// ---- Until it is open ----

/// WebSocket and terminal are there.
void serve(self_pointer self) {
  auto& st = self->state;
  std::optional<web_socket_message> word;
  if (st.offset == st.replay_end)
    word = become_ready(self);
  if (word)
    send_and_go_on(self, std::move(*word));
  else
    ask_for_output(self);
  receive(self);
}

/// What is waited for from now on has so much time.
void wait_at_most(self_pointer self, std::chrono::milliseconds patience) {
  self->delayed_send(self, patience, late_atom::value, ++self->state.patience);
}

void open_socket(self_pointer self) {
  auto& st = self->state;
  const auto to = std::move(st.job.to);
  st.job.to.reset();
  to->upgrade(std::move(st.job.offer),
              [me = caf::actor_cast<caf::actor>(self)](std::shared_ptr<web_socket> socket) {
                socket->on_gone([me] { caf::anon_send(me, gone_atom::value); });
                caf::anon_send(me, opened{std::move(socket)});
              });
}

void found_terminal(self_pointer self, const terminal_actor& terminal, std::uint64_t begin,
                    std::uint64_t end) {
  auto& st = self->state;
  st.terminal = terminal;
  st.offset = std::min(st.job.since.value_or(begin), end);
  st.replay_end = end;
  self->monitor(terminal);
  st.awaited = terminal.address();
  if (!st.socket)
    return open_socket(self);
  ++st.patience;
  serve(self);
}

/// Of a client that has its WebSocket. `at`: as of terminal_words::not_started().
void tell_not_started(self_pointer self, std::optional<question_stage> at, const error& why) {
  auto& st = self->state;
  if (st.over)
    return;
  auto answer = st.job.words->not_started(at, why);
  for (auto& each : answer.messages)
    st.socket->send(std::move(each));
  st.told_end = true;
  close(self, answer.why);
}

void refuse(self_pointer self, question_stage at, const error& why) {
  const auto& st = self->state;
  if (st.socket)
    return tell_not_started(self, at, why);
  st.job.to->respond(st.job.words->refusal(at, why));
  self->quit();
}

void find_sandbox(self_pointer self);

void found_sandbox(self_pointer self, const sandbox_actor& box) {
  auto& st = self->state;
  self->monitor(box);
  st.awaited = box.address();
  self->request(box, caf::infinite, st.job.wanted)
    .then(
      [self, box](const terminal_actor& terminal, std::uint64_t begin, std::uint64_t end) {
        self->demonitor(box.address());
        found_terminal(self, terminal, begin, end);
      },
      [self, box](const caf::error& failure) {
        auto& state = self->state;
        if (!state.tries.take(failure)) // As a terminal that has just ended.
          return refuse(self, question_stage::ask, from_caf(failure));
        state.awaited = nullptr;
        self->demonitor(box.address());
        find_sandbox(self);
      });
}

void find_sandbox(self_pointer self) {
  const auto& job = self->state.job;
  const auto found = [self](const sandbox_actor& box) { found_sandbox(self, box); };
  const auto failed = [self](const caf::error& why) {
    refuse(self, question_stage::find, from_caf(why));
  };
  const auto& context = job.wanted.context;
  if (job.starts_sandbox)
    self->request(job.with->directory, caf::infinite, find_atom::value, job.id, context)
      .then(found, failed);
  else
    self->request(job.with->directory, caf::infinite, reach_atom::value, job.id, context)
      .then(found, failed);
}

void start_as_told(self_pointer self, web_socket_message message) {
  auto& st = self->state;
  st.awaits_start = false;
  if (auto read = st.job.words->read_start(std::move(message), st.job.wanted); !read)
    return tell_not_started(self, std::nullopt, read.reason());
  wait_at_most(self, sandbox_patience);
  find_sandbox(self);
}

void be_late(self_pointer self) {
  if (self->state.awaits_start)
    tell_not_started(self, std::nullopt,
                     {errc::deadline_exceeded, "nothing was to be started in time"});
  else
    tell_not_started(self, question_stage::ask,
                     {errc::deadline_exceeded, "the sandbox was not ready in time"});
}

caf::behavior terminal_stream(self_pointer self, const std::shared_ptr<terminal_job>& job) {
  self->state.job = std::move(*job);
  self->set_down_handler(
    [self](const caf::down_msg& gone) { self->send(self, ended_atom::value, gone.source); });
  if (self->state.job.started_by_message)
    open_socket(self);
  else
    find_sandbox(self);
  return {
    [self](opened& now) {
      auto& st = self->state;
      st.socket = std::move(now.socket);
      if (st.taken_over)
        return close(self, close_reason::taken_over, taken_over);
      if (auto last = st.job.words->last_words())
        st.socket->set_last_words(std::move(*last));
      if (!st.job.started_by_message)
        return serve(self);
      st.socket->wait_for_client(client_patience);
      st.awaits_start = true;
      wait_at_most(self, st.job.with->start_message_patience);
      receive(self);
    },
    [self](late_atom, std::uint64_t patience) {
      if (patience == self->state.patience)
        be_late(self);
    },
    [self](taken_atom) {
      if (!self->state.over)
        ask_for_output(self);
    },
    [self](web_socket_message& message) {
      auto& st = self->state;
      st.receiving = false;
      if (st.over)
        return;
      if (st.awaits_start)
        return start_as_told(self, std::move(message));
      do_what_is_said(self, std::move(message));
      receive(self);
    },
    [self](told_atom) {
      self->state.telling = false;
      receive(self);
    },
    [self](taken_over_atom) {
      auto& st = self->state;
      if (st.socket)
        return close(self, close_reason::taken_over, taken_over);
      if (st.job.to)
        return refuse(self, question_stage::ask, {errc::already_exists, std::string{taken_over}});
      st.taken_over = true;
    },
    [self](gone_atom) {
      self->state.over = true;
      self->quit();
    },
    [self](ended_atom, const caf::actor_addr& who) {
      auto& st = self->state;
      if (who != st.awaited || st.over)
        return; // The stale one of two.
      if (st.socket)
        fail(self, sandbox_ended);
      else if (st.job.to)
        refuse(self, question_stage::ask, sandbox_ended);
      else
        self->quit();
    },
  };
}

} // namespace

result<void> terminal_words::read_start(web_socket_message, open_terminal_request&) const {
  return error{errc::invalid_request, "messages start nothing here"};
}

terminal_refusal terminal_words::not_started(std::optional<question_stage>,
                                             const error& why) const {
  return {{failed(why.message)}, close_reason::policy_violation};
}

void start_terminal_stream(terminal_job job) {
  job.to->answer_within(
    sandbox_patience,
    job.words->refusal(question_stage::find,
                       {errc::deadline_exceeded, "the sandbox was not ready in time"}));
  auto& system = *job.with->system;
  system.spawn(terminal_stream, std::make_shared<terminal_job>(std::move(job)));
}

} // namespace insula::http

#include "http/bridge/pty_stream.hpp"

#include "base/limits.hpp"
#include "http/bridge/ask_sandbox.hpp"
#include "http/json.hpp"
#include "http/utf8.hpp"

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include <cmath>
#include <cstring>

namespace insula::http::bridge {

namespace {

using taken_atom = caf::atom_constant<caf::atom("taken")>;
using gone_atom = caf::atom_constant<caf::atom("gone")>;
using told_atom = caf::atom_constant<caf::atom("told")>;

/// How much output is asked for at once.
constexpr std::uint32_t read_bytes = 64 * 1024;

/// Beyond this much that the terminal has not taken, the client is not read from.
constexpr std::size_t typed_ahead_bytes = 64 * 1024;

constexpr double largest_size = 65'535;

struct opened {
  std::shared_ptr<web_socket> socket;
};

} // namespace
} // namespace insula::http::bridge

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::http::bridge::opened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::http::web_socket_message)

namespace insula::http::bridge {

namespace {

struct pty_state {
  static inline const char* name = "pty_stream";
  pty_job job;
  std::shared_ptr<web_socket> socket; ///< Set once it is open.
  terminal_actor terminal;
  caf::actor_addr awaited;      ///< Sandbox or terminal: without it nothing more will come.
  std::uint64_t offset = 0;     ///< In the terminal's log.
  std::uint64_t replay_end = 0; ///< Where what was there before ends.
  bool ready = false;           ///< That has been sent, and the word that it was all.
  utf8_holdback text;
  std::size_t typed_ahead = 0; ///< What the terminal has not taken counts for so many bytes.
  bool receiving = false;      ///< The client has been asked for a message.
  bool telling = false;        ///< It is being told of a mistake.
  bool over = false;
  bool may_repeat = true;
};

using self_pointer = caf::stateful_actor<pty_state>*;

std::string signal_name(int number) {
  const char* const known = ::sigabbrev_np(number);
  return "SIG" + (known != nullptr ? std::string{known} : std::to_string(number));
}

void close(self_pointer self, close_reason why, std::string_view words = {}) {
  auto& st = self->state;
  if (std::exchange(st.over, true))
    return;
  st.socket->close(why, words);
  self->quit();
}

void fail(self_pointer self, close_reason why, std::string_view words) {
  auto& st = self->state;
  if (!st.over)
    st.socket->send({true, json::write_terminal_error(words)});
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

web_socket_message ready_message(self_pointer self) {
  self->state.ready = true;
  return {true, json::write_terminal_ready()};
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
  if (st.ready)
    bytes = st.text.feed(std::move(bytes));
  if (chunk.ended) {
    bytes += st.text.flush();
    if (!bytes.empty())
      st.socket->send({false, std::move(bytes)});
    if (!st.ready)
      st.socket->send(ready_message(self));
    const auto& end = *chunk.ended;
    st.socket->send(
      {true, json::write_terminal_exit(end.exit_code,
                                       end.signal == 0 ? std::string{} : signal_name(end.signal))});
    return close(self, close_reason::normal);
  }
  const bool any = !bytes.empty();
  if (any)
    send_and_go_on(self, {false, std::move(bytes)});
  if (!st.ready && st.offset >= st.replay_end)
    st.socket->send(ready_message(self));
  if (!any)
    ask_for_output(self); // A character's beginning; the rest will come.
}

void ask_for_output(self_pointer self) {
  auto& st = self->state;
  const auto most = st.ready ? read_bytes : static_cast<std::uint32_t>(st.replay_end - st.offset);
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

/// One mistake at a time: who makes many has to hear of them.
void tell_mistake(self_pointer self, std::string_view words) {
  auto& st = self->state;
  st.telling = true;
  st.socket->send(
    {true, json::write_terminal_error(words)},
    [me = caf::actor_cast<caf::actor>(self)](bool) { caf::anon_send(me, told_atom::value); });
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

void control(self_pointer self, std::string_view text) {
  using kind = json::terminal_control::kind;
  const auto said = json::read_terminal_control(text);
  switch (said.what) {
    case kind::ignored: return;
    case kind::malformed: return tell_mistake(self, "Invalid control message");
    case kind::resize: break;
  }
  if (!(said.columns > 0) || !(said.rows > 0))
    return tell_mistake(self, "Invalid dimensions: cols and rows must be positive");
  if (said.columns > largest_size || said.rows > largest_size)
    return tell_mistake(self, "Invalid control message");
  const auto cut = [](double size) { return static_cast<std::uint16_t>(std::max(size, 1.0)); };
  self->send(self->state.terminal, resize_terminal{cut(said.columns), cut(said.rows)});
}

// ---- Until it is open ----

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
  st.offset = begin;
  st.replay_end = end;
  self->monitor(terminal);
  st.awaited = terminal.address();
  open_socket(self);
}

void refuse(self_pointer self, step at, const error& why) {
  self->state.job.to->respond(error_response(at, why));
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
        const auto why = from_caf(failure);
        // A stale handle, or a terminal that has just ended.
        if (why.code != errc::sandbox_not_running || !std::exchange(state.may_repeat, false))
          return refuse(self, step::terminal, why);
        state.awaited = nullptr;
        self->demonitor(box.address());
        find_sandbox(self);
      });
}

void find_sandbox(self_pointer self) {
  auto& st = self->state;
  self
    ->request(st.job.with->directory, caf::infinite, find_atom::value, st.job.id,
              st.job.wanted.context)
    .then(
      [self](const sandbox_actor& box) { found_sandbox(self, box); },
      [self](const caf::error& failure) { refuse(self, step::find_sandbox, from_caf(failure)); });
}

caf::behavior pty_stream(self_pointer self, const std::shared_ptr<pty_job>& job) {
  self->state.job = std::move(*job);
  self->set_down_handler(
    [self](const caf::down_msg& gone) { self->send(self, ended_atom::value, gone.source); });
  find_sandbox(self);
  return {
    [self](opened& now) {
      auto& st = self->state;
      st.socket = std::move(now.socket);
      if (st.offset == st.replay_end)
        send_and_go_on(self, ready_message(self));
      else
        ask_for_output(self);
      receive(self);
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
      if (message.text)
        control(self, message.bytes);
      else if (!message.bytes.empty())
        type(self, std::move(message.bytes));
      receive(self);
    },
    [self](told_atom) {
      self->state.telling = false;
      receive(self);
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
        refuse(self, step::terminal, sandbox_ended);
      else
        self->quit();
    },
  };
}

} // namespace

void start_pty_stream(pty_job job) {
  job.to->answer_within(sandbox_patience,
                        error_response(step::find_sandbox, {errc::deadline_exceeded,
                                                            "the sandbox was not ready in time"}));
  auto& system = *job.with->system;
  system.spawn(pty_stream, std::make_shared<pty_job>(std::move(job)));
}

} // namespace insula::http::bridge

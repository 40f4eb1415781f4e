#include "base/limits.hpp"
#include "http/json/json.hpp"
#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/opensandbox/log_cursor.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/session_id.hpp"
#include "http/transport/retry_after.hpp"

#include <caf/stateful_actor.hpp>

#include <chrono>

namespace insula::http::opensandbox {

namespace {

using namespace std::chrono_literals;
using taken_atom = caf::atom_constant<caf::atom("taken")>;
using gone_atom = caf::atom_constant<caf::atom("gone")>;

constexpr auto patience = 30s;
constexpr std::uint32_t read_bytes = 256 * 1024;
/// A log up to this is told in one answer; a longer one is read twice, and told as it is read.
constexpr std::size_t whole_bytes = 1u << 20;
constexpr std::string_view log_type = "text/plain; charset=utf-8";

response unknown_command(const std::string& id) {
  return execd_failure(404, "INVALID_REQUEST_BODY", "command not found: " + id);
}

/// Asks without starting anything. `answered` comes on a CAF worker.
template <class Message, class Answer>
void ask(const command_question& asked, std::function<void(const Answer&)> answered) {
  question{*asked.with, asked.sandbox, Message{asked.id, {}}, asked.to}
    .within(patience, no_answer_in_time())
    .starts(false)
    .or_else([id = asked.id](question_stage, const error& why) {
      return why.code == errc::not_found ? unknown_command(id) : execd_failure(why);
    })
    .template then<Answer>(std::move(answered));
}

// ---- The log

struct log_state {
  static inline const char* name = "execd_log";
  command_question asked;
  command_status of;
  log_cursor cursor;
  std::uint64_t offset = 0; ///< What is asked for next, in the process' log,
  std::uint64_t passed = 0; ///< and so many bytes of text before that.
  std::string text;         ///< From the cursor's start on, as long as it is little.
  bool large = false;       ///< It is not: it is read once more.
  std::shared_ptr<answer_stream> stream;
};
using log_pointer = caf::stateful_actor<log_state>*;

void read_log(log_pointer self);

void write(log_pointer self, std::string bytes, bool last) {
  auto& st = self->state;
  if (last) {
    st.stream->finish(std::move(bytes));
    return self->quit();
  }
  if (bytes.empty())
    return read_log(self);
  st.stream->write(std::move(bytes), [me = caf::actor_cast<caf::actor>(self)](bool taken) {
    if (taken)
      caf::anon_send(me, taken_atom::value);
    else
      caf::anon_send(me, gone_atom::value);
  });
}

/// All has been counted.
void tell_log(log_pointer self) {
  auto& st = self->state;
  st.cursor.end(st.of.end.has_value());
  const std::vector<header_field> fields{
    {"EXECD-COMMANDS-TAIL-CURSOR", std::to_string(st.cursor.last_line())}};
  if (!st.large) {
    st.text.resize(st.cursor.stop() - st.cursor.start());
    st.asked.to->respond({200, std::move(st.text), log_type, fields});
    return self->quit();
  }
  st.stream = st.asked.to->stream({log_type, fields, true});
  if (!st.stream)
    return self->quit();
  st.stream->on_gone(
    [me = caf::actor_cast<caf::actor>(self)] { caf::anon_send(me, gone_atom::value); });
  st.offset = st.of.begin_offset;
  st.passed = 0;
  read_log(self);
}

/// Of `bytes`, which follow those before, what lies between the cursor's start and its stop.
std::string_view told_part(const log_state& st, std::string_view bytes) {
  const auto from = std::max(st.cursor.start(), st.passed) - st.passed;
  const auto to = std::max(st.cursor.stop(), st.passed) - st.passed;
  bytes = bytes.substr(0, std::min<std::uint64_t>(to, bytes.size()));
  return bytes.substr(std::min<std::uint64_t>(from, bytes.size()));
}

void took(log_pointer self, const output_chunk& chunk) {
  auto& st = self->state;
  st.offset = chunk.next_offset;
  std::string bytes;
  for (const auto& each : chunk.frames)
    bytes += each.bytes;
  if (st.stream) {
    auto part = std::string{told_part(st, bytes)};
    st.passed += bytes.size();
    return write(self, std::move(part), st.passed >= st.cursor.stop());
  }
  const auto before = std::exchange(st.passed, st.passed + bytes.size());
  const bool had_started = st.cursor.started();
  st.cursor.count(bytes);
  if (st.cursor.started() && !st.large)
    st.text += had_started ? bytes : bytes.substr(st.cursor.start() - before);
  if (st.text.size() > whole_bytes) {
    st.large = true;
    st.text = {};
  }
  read_log(self);
}

void read_log(log_pointer self) {
  auto& st = self->state;
  if (st.offset >= st.of.end_offset)
    return st.stream ? write(self, {}, true) : tell_log(self);
  self->request(st.of.process, caf::infinite, read_output{st.offset, read_bytes})
    .then([self](const output_chunk& chunk) { took(self, chunk); },
          [self](const caf::error& failure) {
            self->state.asked.to->respond(execd_failure(from_caf(failure)));
            self->quit(); // A stream that is not finished is cut.
          });
}

caf::behavior log_teller(log_pointer self, const std::shared_ptr<log_state>& given) {
  self->state = std::move(*given);
  self->state.offset = self->state.of.begin_offset;
  read_log(self);
  return {
    [self](taken_atom) { read_log(self); },
    [self](gone_atom) { self->quit(); },
  };
}

} // namespace

response execd_failure(int status, std::string_view code, std::string_view why) {
  return {status, write_failure(code, why), "application/json; charset=utf-8"};
}

response no_answer_in_time() {
  return execd_failure(500, "RUNTIME_ERROR", "the sandbox did not answer in time");
}

response execd_failure(const error& why) {
  switch (why.code) {
    case errc::invalid_request: return execd_failure(400, "INVALID_REQUEST_BODY", why.message);
    case errc::not_found: return execd_failure(404, "DOCKER::SANDBOX_NOT_FOUND", why.message);
    case errc::forbidden: return execd_failure(403, "RUNTIME_ERROR", why.message);
    case errc::sandbox_mismatch:
    case errc::run_over:
    case errc::run_stopping:
    case errc::run_snapshotting:
    case errc::drive_in_use:
    case errc::drive_gone:
    case errc::snapshot_gone: return execd_failure(409, "RUNTIME_ERROR", why.message);
    case errc::payload_too_large: return execd_failure(413, "INVALID_REQUEST_BODY", why.message);
    case errc::image_refused: return execd_failure(400, "INVALID_REQUEST_BODY", why.message);
    case errc::disk_full: return execd_failure(507, "RUNTIME_ERROR", "the node's disk is full");
    case errc::capacity_exceeded:
    case errc::machine_full:
    case errc::store_failed:
    case errc::image_pending:
      return with_retry_after(execd_failure(503, "RUNTIME_ERROR", why.message), why.code);
    case errc::key_ceiling:
      return with_retry_after(execd_failure(429, "RUNTIME_ERROR", why.message), why);
    case errc::sandbox_not_running:
      return is_being_deleted(why) ? execd_failure(404, "DOCKER::SANDBOX_NOT_FOUND", why.message)
                                   : execd_failure(503, "RUNTIME_ERROR", why.message);
    default:
      return execd_failure(500, "RUNTIME_ERROR",
                           why.code == errc::internal ? "internal error" : why.message);
  }
}

void tell_status(const command_question& asked) {
  ask<find_command, command_status>(
    asked, [to = asked.to, id = asked.id](const command_status& found) {
      if (!found.known)
        return to->respond(unknown_command(id));
      to->respond({200, write_command_status(id, found), "application/json; charset=utf-8"});
    });
}

void tell_logs(const command_question& asked, std::optional<std::int64_t> after) {
  ask<find_command, command_status>(asked, [asked, after](const command_status& found) {
    if (!found.known)
      return asked.to->respond(unknown_command(asked.id));
    if (!found.output)
      return asked.to->respond(execd_failure(
        400, "INVALID_REQUEST_BODY", "command " + asked.id + " is not running in background"));
    if (!found.process)
      return asked.to->respond(
        execd_failure(404, "INVALID_REQUEST_BODY", "the output of " + asked.id + " is gone"));
    auto given = std::make_shared<log_state>();
    given->asked = asked;
    given->of = found;
    given->cursor = log_cursor{after.value_or(-1)};
    asked.with->system->spawn(log_teller, std::move(given));
  });
}

namespace {

/// It is no command's id: it may be a session's.
void end_session(const command_question& asked) {
  question{*asked.with, asked.sandbox, delete_session_request{asked.id, {}}, asked.to}
    .starts(false)
    .or_else([id = asked.id](question_stage, const error& why) {
      return why.code == errc::not_found ? unknown_command(id) : execd_failure(why);
    })
    .then<caf::ok_atom>([to = asked.to](caf::ok_atom) {
      to->respond({200, "{}", "application/json; charset=utf-8"});
    });
}

} // namespace

void interrupt(const command_question& asked) {
  asked.to->answer_within(patience, no_answer_in_time());
  sandbox_question<interrupt_command, caf::ok_atom> order{
    asked.with->directory,
    asked.sandbox,
    {asked.id, asked.to->context()},
    [to = asked.to](caf::ok_atom) {
      to->respond({200, "{}", "application/json; charset=utf-8"});
    },
    [asked](question_stage, const error& why) {
      if (why.code != errc::not_found)
        return asked.to->respond(execd_failure(why));
      is_session_id(asked.id) ? end_session(asked) : asked.to->respond(unknown_command(asked.id));
    }};
  order.starts_it = false;
  ask_sandbox(*asked.with, std::move(order));
}

} // namespace insula::http::opensandbox

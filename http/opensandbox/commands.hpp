#pragma once

#include "actors/protocol/messages.hpp"
#include "http/sandboxes/command_stream.hpp"
#include "http/sandboxes/services.hpp"
#include "http/transport/exchange.hpp"

#include <memory>
#include <optional>
#include <string>

namespace insula::http::opensandbox {

/// How the events of one command are told.
struct told_as {
  std::string id;             ///< By which its client knows it.
  bool cwd_named = false;     ///< The client has named a directory.
  bool needs_session = false; ///< It runs in a session that has to be there.
  bool keeps_ends = false;    ///< Lines are told with what they end with.
  bool tells_rest = false;    ///< Of a line that does not end, what there is after a moment.
  bool merges = false;        ///< All of its output is told as stdout.
};
std::unique_ptr<command_words> execd_command_words(told_as how);

/// One command to be run, and told as events: all of its output, or, in the background, that it
/// runs.
struct execd_job {
  std::shared_ptr<const services> with;
  std::string sandbox;
  bool makes_sandbox = false; ///< On first use; else it has to be there.
  exec_request command;       ///< once.key is its id.
  bool background = false;
  bool ends_with_client = false; ///< It is interrupted when its client goes.
  told_as told;
  reply to;
};
void start_command(execd_job job);

/// One that has been asked for: `GET …/status/{id}`, `…/{id}/logs`, `DELETE …?id=`.
struct command_question {
  std::shared_ptr<const services> with;
  std::string sandbox;
  std::string id;
  reply to;
};
void tell_status(const command_question& asked);
/// `after`: the number of the last line that the client has; none: nothing.
void tell_logs(const command_question& asked, std::optional<std::int64_t> after);
/// Of a session: all of it ends.
void interrupt(const command_question& asked);

/// The answer to a failure, as execd's clients read it.
response execd_failure(int status, std::string_view code, std::string_view why);
response execd_failure(const error& why);
response no_answer_in_time();

} // namespace insula::http::opensandbox

#pragma once

#include "actors/protocol/messages.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/services.hpp"
#include "http/transport/exchange.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::http {

/// How an API tells one command and its output. One object for each stream; one call at a time, on
/// any thread.
class command_words {
public:
  /// What does not change while a stream lasts.
  struct manner {
    std::uint32_t read_bytes = 128 * 1024; ///< How much output is asked for at once.
    bool opens_early = false; ///< The stream begins once the sandbox is found; else, and of a
                              ///< command with an open input, with the command.
    bool reads_ahead = false; ///< More output is read while the client takes what there is.
    std::chrono::milliseconds ping_pause{}; ///< Between two pings; 0: there are none.
    std::chrono::milliseconds
      rest_patience{}; ///< For a line to end, until its rest is told; 0: none.
  };

  virtual ~command_words() = default;

  virtual manner how() const = 0;
  virtual stream_head head() const = 0;
  /// What is sent whenever nothing else has been for services::heartbeat; empty: nothing.
  virtual std::string silence() const { return {}; }

  /// In place of a stream.
  virtual response refusal(question_stage at, const error& why) const = 0;
  /// The same for a command that does not start; none: that is told in the stream.
  virtual std::optional<response> start_refusal(const error& why) const = 0;
  /// Takes the words of the command that was asked for before; its key. Empty: that is told as any
  /// refusal. `why`: request_known.
  virtual std::string become(const error&) { return {}; }

  // ---- Each appends to `to` what goes into the stream.

  virtual void begin(std::string&) {}
  virtual void output(std::string& to, const std::vector<output_frame>& frames) = 0;
  /// The command has ended, and all of its output has been told.
  virtual void ended(std::string& to, const process_end& how) = 0;
  /// Instead of its end.
  virtual void failed(std::string& to, const error& why) = 0;
  /// It runs in the background: nothing follows.
  virtual void left(std::string&) {}
  virtual void ping(std::string&) {}
  /// Of lines that have not ended.
  virtual void rest(std::string&) {}
  virtual bool has_rest() const { return false; }

  // ---- Of a command that has its effect once, and may have been started before

  /// The client has had nothing of it.
  virtual bool is_at_beginning() const { return true; }
  /// Where in the command's output the client goes on. Errors: result_gone, invalid_request.
  virtual result<std::uint64_t> resume(const replay_status&) { return std::uint64_t{0}; }
};

/// One command to be run, and told as it runs.
struct command_job {
  std::shared_ptr<const services> with;
  std::string sandbox;
  bool starts_sandbox = true; ///< Else the sandbox has to be there.
  exec_request command;
  std::string unstartable = {};  ///< Why no program can be given this. Empty: one can.
  bool can_resume = false;       ///< The command has its effect once; its client can ask again.
  bool background = false;       ///< The stream ends once the command runs.
  bool ends_with_client = false; ///< The command is interrupted when its client goes.
  std::chrono::milliseconds patience = sandbox_patience; ///< Until there is a stream.
  std::unique_ptr<command_words> words;
  reply to;
};

/// Starts the short-lived actor that finds the sandbox, starts the command and passes its output
/// on, as fast as the client takes it. The client going away ends the actor, not the command.
void run_command(command_job job);

} // namespace insula::http

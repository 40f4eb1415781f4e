#pragma once

#include "actors/protocol/messages.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/stream_position.hpp"

#include <memory>
#include <optional>
#include <string>

namespace insula::http::bridge {

/// One exec to be answered as an event stream.
struct exec_job {
  std::shared_ptr<const services> with;
  std::string id;
  exec_request command;
  std::string unstartable = {}; ///< Why no program can be given this. Empty: one can.
  /// Of a command that runs once: what the client has had of its stream. None: nothing.
  std::optional<stream_position> from = {};
  std::string timeout_text; ///< The time limit as the client wrote it, if it has.
  reply to;
};

/// Starts the short-lived actor that finds the sandbox, starts the command and passes its output
/// on. The client going away ends the actor, not the command. Of a command that runs once, it may
/// have been started before.
void start_exec_stream(exec_job job);

} // namespace insula::http::bridge

#pragma once

#include "http/bridge/stream_position.hpp"
#include "http/sandboxes/command_stream.hpp"

#include <memory>
#include <optional>
#include <string>

namespace insula::http::bridge {

/// An exec as the bridge tells it: server-sent events with output in base64, and one exit or error
/// event at the end. `from`: of a command that has its effect once, what the client has had of the
/// stream. `timeout_text`: the time limit as the client wrote it, if it has. `shows_times`: the
/// head waits for the first event, when it is known where the time went.
std::unique_ptr<command_words> exec_words(bool is_keyed, std::optional<stream_position> from,
                                          std::string timeout_text, bool shows_times);

} // namespace insula::http::bridge

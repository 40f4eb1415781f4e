#pragma once

#include "actors/protocol/messages.hpp"
#include "http/exchange.hpp"

#include <string>

namespace insula::http::bridge {

/// Answers `to` with the file at the other end of `channel`; `path` is for the error's text. What
/// comes through the channel is not trusted: frames have a ceiling, silence a time limit, and a
/// stream without its end cuts the connection. Any thread.
void start_download(file_channel channel, std::string path, reply to);

} // namespace insula::http::bridge

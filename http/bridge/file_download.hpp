#pragma once

#include "actors/protocol/messages.hpp"
#include "http/sandboxes/byte_range.hpp"
#include "http/transport/exchange.hpp"

#include <functional>
#include <optional>
#include <string>

namespace insula::http::bridge {

/// A part of a file, as it was asked for.
struct wanted_part {
  byte_range range;
  /// Has the whole file answered instead: the kernel's own files say that they are empty, and have
  /// as much as there is to say.
  std::function<void()> ask_whole;
};

/// Answers `to` with the file at the other end of `channel`, or with a part of it, if that is what
/// the channel has (read_file_request::part); `path` is for the error's text. What comes through
/// the channel is not trusted: frames have a ceiling, silence a time limit, and a stream without
/// its end cuts the connection. Any thread.
void start_download(file_channel channel, std::string path, std::optional<wanted_part> part,
                    reply to);

} // namespace insula::http::bridge

#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/stream_frames.hpp"
#include "http/transport/exchange.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace insula::http {

/// Who is told what comes through a file_channel (base/stream_frames.hpp). On one strand.
class channel_listener {
public:
  virtual ~channel_listener() = default;

  /// False: nothing more is wanted.
  virtual bool begin(const file_head& head) = 0;

  /// A frame. The next one comes once `next` has been called; if it is dropped, none does. `last`:
  /// nothing follows.
  virtual void take(std::string bytes, bool last, std::function<void()> next) = 0;

  /// Instead of the rest. Errors: io_failed, deadline_exceeded.
  virtual void cut(const error& why) = 0;
};

/// What comes through is not trusted: frames have a ceiling, silence a time limit, and a stream
/// without its end is cut. Any thread; the listener is called on the strand.
void read_channel(file_channel channel, const strand_handle& strand,
                  std::shared_ptr<channel_listener> listener,
                  std::chrono::milliseconds longest_silence = limits::reader_patience);

} // namespace insula::http

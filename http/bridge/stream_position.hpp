#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace insula::http::bridge {

/// Where a client is in a command's stream, behind one event: what the event's id says, and a
/// client gives back as Last-Event-ID. Mostly the offset in the log and nothing else.
struct stream_position {
  std::uint64_t offset = 0;
  // Of characters that have begun before it and are sent once they are complete: 0 to 3 bytes.
  std::string out;
  std::string err;
  /// All that is said of the command's end has been, but its exit code.
  bool end_told = false;

  /// "1234", "1234-e282-" or "1234-end".
  std::string text() const;
  static std::optional<stream_position> read(std::string_view text);

  bool operator==(const stream_position&) const = default;
};

} // namespace insula::http::bridge

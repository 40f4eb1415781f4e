#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What every folder says of a command's output and of a terminal.
namespace insula {

enum class output_stream : std::uint8_t { out = 1, err = 2 };

/// Bytes of one stream that follow each other in a log.
struct output_frame {
  output_stream stream = output_stream::out;
  std::string bytes;
  std::uint64_t end = 0; ///< The offset behind it, from which one can read as well.
};

/// What one read of a log gives, besides how the command has ended.
struct output_piece {
  std::vector<output_frame> frames;
  std::uint64_t next_offset = 0;
  std::uint64_t lost_bytes = 0; ///< Skipped, because the log no longer had them.
};

/// In characters.
struct terminal_size {
  std::uint16_t columns = 80;
  std::uint16_t rows = 24;
};

} // namespace insula

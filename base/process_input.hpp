#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

/// What every folder says of a command's standard input.
namespace insula {

/// A part of a command's input, by its place in all of it: what was taken before is not taken
/// twice.
struct input_piece {
  /// Of its first byte. None: behind what has been taken so far.
  std::optional<std::uint64_t> offset = {};
  std::string bytes;   ///< None and not `closes`: a question how much has been taken.
  bool closes = false; ///< Nothing comes behind it: the command reads the end of its input then.
  std::chrono::milliseconds patience{}; ///< For the command to read what is in its way.
};

enum class input_state : std::uint8_t {
  taken,   ///< All of the piece; and the input is closed, if it was to be.
  slow,    ///< The command did not read in time: a part of the piece is not taken.
  ahead,   ///< The piece begins behind what has been taken. Nothing of it is.
  over,    ///< The command reads no input, or no more. A part of the piece is not taken.
  crowded, ///< Too many pieces wait for this command. Nothing of this one is taken.
};

struct input_progress {
  std::uint64_t taken = 0; ///< Of the input, since its beginning.
  input_state state = input_state::taken;
};

} // namespace insula

#pragma once

#include "actors/protocol/messages.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace insula::actors {

/// What an object writes on the processes that it starts, for the server that may find them: enough
/// to be the same object again.
struct survivor_note {
  std::string session;                    ///< Whose it is; empty: nobody's.
  bool first = true;                      ///< Of a shell: none of its session has ended before it.
  std::optional<std::int64_t> timeout_ms; ///< Of a command, and, of a shell, for its commands.
  /// When a command's time is up. The clock is the machine's, so it is the next server's, too.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::string key;        ///< Under which its result is kept; empty: it is not.
  bool timed_out = false; ///< Its time was up, and it was ended for that.
  command_rules rules = {};

  std::string label() const;

  /// None: it is not one of this version's.
  static std::optional<survivor_note> read(std::string_view label);
};

/// Of a command that is started now.
survivor_note note_of(std::string session, std::optional<std::int64_t> timeout_ms);

} // namespace insula::actors

#pragma once

#include "runtime/agent/protocol.hpp"

/// What the server and the keeper of a session's shell say to each other, in the manner of
/// protocol.hpp. The keeper runs as the sandbox's user, who can be it: the server trusts nothing of
/// what it says.
namespace insula::runtime::agent {

inline constexpr std::uint32_t shell_version = 1;

/// Where the keeper finds its channel, and what it is called when the agent runs itself as one.
inline constexpr int shell_channel_fd = script_fd;
inline constexpr char keeper_name[] = "insula-shell";

enum class shell_op : std::uint32_t {
  run = 1,   ///< Run a script, as command `number`. Text: a directory for it alone, or nothing.
             ///< Descriptors: the script, and where stdout and stderr go.
  interrupt, ///< End what command `number` has started; the shell goes on.
  kill,      ///< The same by force, and the shell itself if it has not come back by `patience_ms`.
  end,       ///< End the shell and all that it has started.
  ping,      ///< Answered with pong.
  report, ///< Say again what was said last: started and finished of the last command, then ready.
          ///< For a server that has just taken over.
};

struct shell_request {
  shell_op what;
  std::uint32_t text_bytes; ///< What follows the struct.
  std::uint64_t number;
  std::uint32_t patience_ms;
  std::uint32_t reserved;
};

/// A path that the kernel takes, without its NUL.
inline constexpr std::size_t max_shell_text = 4095;

enum class shell_event : std::uint32_t {
  ready = 1, ///< The shell takes commands.
  failed,    ///< It cannot be started, with errno `value`.
  started,   ///< Command `number` has been handed to the shell.
  finished,  ///< It has ended with `value`, 0 to 255.
  ended,     ///< The shell has ended, with wait status `value`.
  pong,
};

struct shell_notice {
  shell_event what;
  std::int32_t value;
  std::uint64_t number;
};

} // namespace insula::runtime::agent

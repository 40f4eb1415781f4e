#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

/// What the engine writes on what the spawner keeps for it, so that the next server's engine knows
/// it again. One machine writes and reads it, and one version: a struct, then the asker's own
/// label.
namespace insula::runtime {

inline constexpr std::uint32_t held_label_version = 1;

enum class held_kind : std::uint32_t {
  command = 1,      ///< Descriptors: the pipes of stdout and stderr, the log.
  opening_terminal, ///< The channel through which its master comes.
  terminal,         ///< Its master, its log.
  shell,            ///< The channel to its keeper.
  shell_command,    ///< As command, and its script.
  late_pipe,        ///< A pipe that a shell's command has left behind.
  input,            ///< A command's stdin: the pipe's end to write to, the segment.
};

struct held_head {
  held_kind kind{};
  /// It has ended with `status`; its output may go on. Of an input: it takes no more.
  std::uint32_t exited = 0;
  std::int32_t status = 0;
  std::uint32_t internal = 0; ///< Nobody has asked for it but the engine.
  std::uint32_t kept = 0;     ///< Also when it has ended, until it is let go of.
  /// Of one that is kept: of the descriptors only the log is left. Of an input: it is closed, and
  /// its one descriptor stands for nothing.
  std::uint32_t complete = 0;
  std::uint32_t out_of_memory = 0; ///< Of one that has ended.
  std::uint32_t lost = 0;          ///< Some of its output could not be kept.
  std::uint64_t log_bytes = 0;
  std::uint64_t memory_kills = 0; ///< Of the sandbox, before it began.
  std::uint64_t shell =
    0; ///< Of a shell_command: the name of its shell. Of an input: its command's.
  std::uint64_t number = 0; ///< Its number there. Of an input: bytes taken before its segment.
};

inline std::string held_label(const held_head& head, std::string_view text = {}) {
  std::string label{reinterpret_cast<const char*>(&head), sizeof head};
  return label.append(text);
}

/// None: it is not one.
inline std::optional<held_head> head_of(std::string_view label) {
  held_head head;
  if (label.size() < sizeof head)
    return std::nullopt;
  std::memcpy(&head, label.data(), sizeof head);
  return head;
}

/// The asker's part of what has a head.
inline std::string text_of(std::string_view label) {
  return std::string{label.substr(sizeof(held_head))};
}

} // namespace insula::runtime

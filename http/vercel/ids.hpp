#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Ids of this API say where their objects live: which sandbox a path is about is a function of the
/// path and the node's secret alone.
namespace insula::http::vercel {

/// The length of a sandbox's id: 16 bytes in base32.
inline constexpr std::size_t sandbox_digits = 26;

/// The sandbox of that name in that project.
std::string sandbox_of(std::string_view secret, std::string_view project, std::string_view name);

/// `sbx_` and the id of a sandbox: the name that a sandbox of another API has in this one. Empty:
/// it is no such name.
std::string other_sandbox_of(std::string_view name);
/// Of both kinds of names.
std::string id_of_name(std::string_view secret, std::string_view project, std::string_view name);

/// The sandbox that is the drive of that name in that project.
std::string drive_of(std::string_view secret, std::string_view project, std::string_view name);
/// `drv_` and the id of that sandbox.
std::string id_of_drive(std::string_view sandbox);
/// "" if it is the id of no drive.
std::string drive_of_id(std::string_view id);

/// `sbx_<sandbox><run>`.
struct session_id {
  std::string sandbox;
  std::uint64_t run = 0; ///< 0: the sandbox is another API's, and has no runs.

  std::string text() const;
  /// Of a sandbox of another API.
  std::string name() const;
  static std::optional<session_id> parse(std::string_view text);
};

/// `snap_` and the id of a snapshot, as the node knows it.
std::string id_of_snapshot(std::string_view snapshot);
/// Empty: it is none.
std::string snapshot_of(std::string_view id);

/// `cmd_` and the key of a remembered command.
std::string new_command_id();
/// Empty: it is none.
std::string key_of_command(std::string_view id);

/// A name that nobody guesses, and that can be read: "amber-heron-k3f9w2qd7x4m".
std::string generate_name();

/// 1 to 64 of [a-zA-Z0-9_-].
bool is_drive_name(std::string_view text);

/// 1 to 128 of [a-zA-Z0-9_-], and no word that a path has in that place.
bool is_sandbox_name(std::string_view text);
/// And no name of a sandbox of another API.
bool is_name_to_give(std::string_view text);

} // namespace insula::http::vercel

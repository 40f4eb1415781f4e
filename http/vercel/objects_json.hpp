#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/protocol/snapshots.hpp"
#include "http/vercel/settings.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The objects of this API as its clients read them: ASCII, and a member that has no value is left
/// out.
namespace insula::http::vercel {

inline constexpr std::string_view working_directory = "/vercel/sandbox";
/// Of a sandbox of another API.
inline constexpr std::string_view other_directory = "/workspace";
inline constexpr int interactive_port = 26661;

/// A sandbox with its latest run.
struct sandbox_view {
  std::string id; ///< Of the sandbox, as the other APIs know it.
  settings is;
  std::int64_t created_ms = 0;
  sandbox_run run;
  run_totals totals = {};
  std::string snapshot = {}; ///< That its next session begins with. Empty: with none.
  std::optional<std::int64_t> expires_ms = {}; ///< Of its session. None: nobody knows.
  std::string_view cwd = working_directory;    ///< A literal.
  std::uint64_t memory_mb = 0;                 ///< 0: what this API gives to so many CPUs.

  /// Another API has made it.
  bool is_other() const { return run.number == 0; }
};

struct route_view {
  std::uint16_t port = 0;
  std::string subdomain;
  std::string url;
};

void write_sandbox(json::ascii_writer& out, const sandbox_view& of);
void write_session(json::ascii_writer& out, const sandbox_view& of);
void write_snapshot(json::ascii_writer& out, const snapshot_description& of);
void write_routes(json::ascii_writer& out, const std::vector<route_view>& all);
/// `next`: none: this is the last page.
void write_pagination(json::ascii_writer& out, std::size_t count,
                      const std::optional<std::string>& next);

struct command_view {
  std::string id, name;
  std::vector<std::string> args;
  std::string cwd, session;
  std::int64_t started_ms = 0;
  std::optional<int> exit_code = {}; ///< None: it runs.
  std::int64_t duration_ms = 0;
};
void write_command(json::ascii_writer& out, const command_view& of);

/// What is kept with a remembered command, and back.
std::string text_of(const command_view& of);
command_view read_command_view(std::string_view text);

} // namespace insula::http::vercel

#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"
#include "http/json/writer.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http::opensandbox {

/// How a sandbox came to be that is a fork.
struct fork_note {
  std::string source;        ///< Of whose disk it began with a snapshot.
  std::string request;       ///< What was asked for, as a hash.
  std::int64_t began_ms = 0; ///< Unix time.
};

/// This API's metadata of a sandbox.
struct sandbox_notes {
  std::string image;                   ///< As its maker called it.
  std::vector<std::string> entrypoint; ///< What it was made to run.
  std::map<std::string, std::string> metadata = {};
  std::string snapshot = {}; ///< That its disk begins with; then `image` is empty.
  std::optional<fork_note> fork = {};
};
/// This API's name among a sandbox's metadata.
inline constexpr const char* metadata_api = "opensandbox";
/// This API's text among a sandbox's metadata. Empty: another API has made it.
std::string text_of_notes(const sandbox_description& of);
/// A sandbox that another API has made has no notes.
sandbox_notes read_notes(std::string_view text);
std::string write_notes(const sandbox_notes& notes);

/// Body of POST /sandboxes. Errors: invalid_request.
struct create_body {
  sandbox_notes notes;
  std::map<std::string, std::string> env = {};
  std::optional<std::int64_t> timeout_s = {}; ///< 60 and more. None: for ever.
  std::optional<egress_policy> network = {};
  // Of resourceLimits. 0: none.
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpu_percent = 0;        ///< Of one CPU.
  std::optional<privileges> gains = {}; ///< Of extensions. None: the node's.
  bool metadata_given = false;
};
struct refusal {
  int status = 400;
  std::string_view code;
  std::string why;
};
/// None: it is good.
std::optional<refusal> read_create_body(std::string_view text, create_body& into);

/// Body of POST …/fork. What is not given is the source's.
struct fork_body {
  /// The entrypoint is there in any case; of the rest what the overrides say.
  create_body with;
  bool env = false, limits = false; ///< They are given.
};
/// None: it is good.
std::optional<refusal> read_fork_body(std::string_view text, fork_body& into);

enum class fork_state : std::uint8_t { pending, snapshotting, provisioning, succeeded, failed };
/// What a fork has come to.
struct fork_operation {
  std::string id;
  fork_note from;
  fork_state state = fork_state::pending;
  std::string_view reason = {}; ///< Why it has failed: a literal, and a sentence.
  std::string message = {};
  std::string snapshot = {}; ///< Empty: there is none yet, or none any more.
  std::int64_t updated_ms = 0;
  bool cleanup_pending = false; ///< What it leaves has yet to go.
};
std::string write_fork(const fork_operation& is);
/// That of a sandbox which is there. None: it is no fork.
std::optional<fork_operation> fork_of(const std::string& id, const sandbox_description& is);

/// What a new sandbox is to begin with. Empty: that is not named.
struct told_start {
  std::string image;
  std::string snapshot;
};
/// Of a body that may be malformed.
told_start start_of_create_body(std::string_view body);

/// Body of PATCH …/metadata, applied. None: it is good.
std::optional<refusal> patch_metadata(std::string_view text,
                                      std::map<std::string, std::string>& metadata);

/// Body of POST …/renew-expiration: Unix time in ms; times without a zone are UTC. Errors:
/// invalid_request.
result<std::int64_t> read_expiration(std::string_view text);

/// The answer of create (`created`), and of everything else that tells of one.
/// All states that a sandbox is told to be in.
inline constexpr std::array<std::string_view, 3> lifecycle_states{"Running", "Paused",
                                                                  "Terminated"};
/// Terminated: its run is over, and no request of this API begins another.
std::string_view state_of(const sandbox_description& of);

std::string write_sandbox(const std::string& id, const sandbox_description& of, bool created);
std::string write_list(const std::vector<described_sandbox>& items, std::uint64_t page,
                       std::uint64_t page_size, std::uint64_t total);
/// The member of a list that says which page it is.
void append_pagination(json::writer& out, std::uint64_t page, std::uint64_t page_size,
                       std::uint64_t total);
std::string write_expiration(std::int64_t expires_ms);
std::string write_endpoint(const std::string& endpoint,
                           const std::map<std::string, std::string>& headers);

} // namespace insula::http::opensandbox

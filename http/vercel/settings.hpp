#pragma once

#include "actors/protocol/messages.hpp"
#include "base/token_signer.hpp"
#include "http/json/writer.hpp"
#include "http/vercel/failures.hpp"
#include "http/vercel/policy.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What a sandbox of this API is to be: said when it is made, changed by PATCH, and kept as this
/// API's metadata in the sandbox's record.
namespace insula::http::vercel {

/// The name of this API's metadata.
inline constexpr const char* metadata_api = "vercel";

inline constexpr std::int64_t default_timeout_ms = 300'000;
inline constexpr std::int64_t most_timeout_ms = 24LL * 60 * 60 * 1000;
inline constexpr unsigned most_vcpus = 32;
inline constexpr std::int64_t memory_of_vcpu_mb = 2048;
inline constexpr const char* default_region = "iad1";
inline constexpr std::int64_t default_snapshot_ms = 30LL * 24 * 60 * 60 * 1000;

struct retention {
  int count = 1;
  std::optional<std::int64_t> expiration_ms = {};
  bool delete_evicted = true;
};

/// A drive of the project as a directory.
struct drive_wish {
  std::string drive; ///< Its name.
  drive_mode mode = drive_mode::read_write;
};

struct settings {
  std::string project, name;
  std::string team = {}; ///< That made it, as tokens about it say. Empty: none was named.
  bool persistent = true;
  std::int64_t timeout_ms = default_timeout_ms;
  unsigned vcpus = 2;
  std::string runtime = {}, image = {}; ///< Empty: none was asked for.
  std::vector<std::uint16_t> ports = {};
  std::map<std::string, std::string> tags = {};
  network_wish network = {};
  std::optional<std::int64_t> snapshot_expiration_ms = {};
  std::optional<retention> keep_last = {};
  std::string region = default_region;
  std::string network_id = {};
  std::int64_t updated_ms = 0;
  bool unfinished = false; ///< It is being made: its client has not been told of it.
  std::map<std::string, drive_wish> mounts = {}; ///< By path; the next session has them.
};

struct git_source {
  std::string url, revision = {}, username = {}, password = {};
  int depth = 0; ///< 0: all of it.
};
struct tarball_source {
  std::string url;
};

struct create_request {
  settings wanted;
  std::map<std::string, std::string> env = {};
  std::optional<git_source> git = {};
  std::optional<tarball_source> tarball = {};
  std::string snapshot = {}; ///< As the node knows it. Empty: it begins with none.
};

/// There is no such snapshot, or none any more.
refusal gone_snapshot(const std::string& id);

/// Of a request to make one. None: it is well formed. A name is made if there is none.
std::optional<refusal> read_create(std::string_view body, create_request& into);

/// Of a request to fork a sandbox, whose settings and environment `into` has. None: it is well
/// formed. `other_image`: it names an image.
std::optional<refusal> read_fork(std::string_view body, create_request& into, bool& other_image);

/// The project, the name and the mounts in a body that may be malformed; each may be empty.
settings settings_in(std::string_view body);

/// All or nothing of it. `snapshot`: what the next session is to begin with, as the node knows it;
/// empty: with what it would begin with.
std::optional<refusal> apply_patch(std::string_view body, settings& to, std::string& snapshot);

/// Of a body that asks for a snapshot.
struct snapshot_request {
  std::optional<std::int64_t> keep_ms = {}; ///< None: as the sandbox has it. 0: for good.
  bool keeps_running = false;
};
std::optional<refusal> read_snapshot_request(std::string_view body, snapshot_request& into);

/// As metadata, and back. None: a later version has written it.
std::string text_of(const settings& what);
std::optional<settings> read_settings(std::string_view text);
/// None: the sandbox is not this API's.
std::optional<settings> settings_of(const sandbox_description& is);

/// The group of a sandbox with these texts is its project; drives have groups of their own. None:
/// it is not this API's, or is being made.
std::optional<grouped_sandbox> group_of(const api_metadata& all);

/// What people read of a sandbox with these texts. None: it is not this API's.
std::optional<sandbox_caption> caption_of(const api_metadata& all);
/// What tokens say that are signed for a run of a sandbox. `usual_team`: of one that no team has
/// made.
inline constexpr const char* usual_team = "team_insula";
token_claims claims_of(const std::string& sandbox, const api_metadata& all, std::uint64_t run);

void write_mounts(json::ascii_writer& out, const std::map<std::string, drive_wish>& all);

/// The drives of its next session, as the node knows them.
std::vector<drive_mount> drives_of(const settings& is, std::string_view secret);

/// The one beside which its sessions begin. Empty: there is none.
std::string own_drive_of(const settings& is, std::string_view secret);

/// What becomes of the disks of its sessions.
snapshot_retention retention_of(const settings& of);
snapshot_retention retention_in(const api_metadata& all);

/// What the image is called elsewhere in this node.
std::string image_name(const settings& of);

} // namespace insula::http::vercel

#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/record_keys.hpp"
#include "base/error.hpp"
#include "base/token_signer.hpp"
#include "storage/store.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What APIs say of a sandbox, as keys of its record: one for each API.
namespace insula::actors {

/// The caption of a sandbox, by what APIs say of it. None: no API has one for it. Any thread,
/// quick.
using caption_rule = std::function<std::optional<sandbox_caption>(const api_metadata&)>;

/// What becomes of the disks of a sandbox's runs, by what APIs say of it. Any thread, quick.
using run_disk_rule = std::function<snapshot_retention(const api_metadata&)>;
/// What a run that is about to begin may use and reach, in the same way. None: what the sandbox
/// has.
using run_limits_rule = std::function<std::optional<run_limits>(const api_metadata&)>;

/// What tokens say that are signed for a run of a sandbox, in the same way.
using claims_rule =
  std::function<token_claims(const std::string& sandbox, const api_metadata&, std::uint64_t run)>;

/// Is this a key of that kind?
bool is_metadata(std::string_view key);

/// Of a record of an earlier version, which had one text without an API, OpenSandbox has that one.
api_metadata metadata_of(const record_entries& record);

/// With these the record has that text for that API.
std::vector<storage::change> metadata_changes(const std::string& api, std::string text);

/// None: a sandbox may have these. Errors: invalid_request.
std::optional<error> malformed_metadata(const api_metadata& all);

} // namespace insula::actors

#pragma once

#include "storage/store.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

/// The record of a sandbox, and those of its keys that more than one part reads.
namespace insula::actors {

using record_entries = std::map<std::string, std::string, std::less<>>;

inline constexpr const char* created_key = "created_ms"; ///< With it there is such a sandbox.
inline constexpr const char* started_key = "started_ms";
inline constexpr const char* expires_key = "expires_ms";
inline constexpr const char* image_key = "image"; ///< Its name on the node that has started it.
/// REPOSITORY@DIGEST of that image. None: it is from no registry.
inline constexpr const char* image_source_key = "image_source";
inline constexpr const char* image_asked_key = "image_asked"; ///< In its maker's words.
inline constexpr const char* paused_key = "paused";           ///< It is, whatever the value.
/// The name of the API key with which it was made. None: the main key, or none.
inline constexpr const char* made_by_key = "made_by";
/// Since when its files outlive their node, in Unix time. None: they do not.
inline constexpr const char* persistent_key = "persistent";
/// The snapshot that its disk begins with at each start, which it holds. None: it begins empty.
inline constexpr const char* disk_from_key = "disk_from";
/// The snapshot that its next run begins with, which it holds as well, while a run is alive. None:
/// what that run leaves, or else disk_from_key.
inline constexpr const char* disk_next_key = "disk_next";
/// What these keys begin with, and the next.
inline constexpr std::string_view disk_keys = "disk_";
/// The snapshot that it was made from, was rolled back to, or has left at the end of its last run,
/// as APIs tell it. None: it is of none, or of one that nobody sees.
inline constexpr const char* disk_of_key = "disk_of";
/// The drives that it has at each start: a line for each, with its mode, its id, its name and its
/// path. None: it has none.
inline constexpr const char* drives_key = "drives";
/// Of a drive: a sandbox that has it, its run and its name, each in a line. None: no sandbox has
/// it.
inline constexpr const char* drive_user_key = "drive_user";
/// The ceiling of its disk, in place of the node's.
inline constexpr const char* disk_limit_key = "disk_limit";
/// Of a sandbox, and of a snapshot: when a copy was made that outlives the node, in Unix time, a
/// blank, and where it is.
inline constexpr const char* snapshot_key = "snapshot";

/// What the alarm of a run is below, as an object of the sandbox's.
inline constexpr std::string_view run_clock_prefix = "deadline/";

/// What makes the entries below `prefixes` those that are wanted there.
inline std::vector<storage::change> underived(const record_entries& record,
                                              const std::vector<std::string>& prefixes,
                                              std::vector<storage::entry> wanted) {
  std::vector<storage::change> changes;
  for (const auto& prefix : prefixes)
    for (auto at = record.lower_bound(prefix); at != record.end() && at->first.starts_with(prefix);
         ++at)
      if (std::none_of(wanted.begin(), wanted.end(),
                       [&](const auto& each) { return each.key == at->first; }))
        changes.push_back({at->first, std::nullopt});
  for (auto& each : wanted)
    if (const auto at = record.find(each.key); at == record.end() || at->second != each.value)
      changes.push_back({std::move(each.key), std::move(each.value)});
  return changes;
}

/// None: the text is no number, or is more than one.
inline std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto* const end = text.data() + text.size();
  const auto [at, why] = std::from_chars(text.data(), end, value);
  return why == std::errc{} && at == end ? std::optional{value} : std::nullopt;
}

/// None: there is no such key, or it has no number.
inline std::optional<std::int64_t> number_in(const record_entries& record, std::string_view key) {
  const auto at = record.find(key);
  return at == record.end() ? std::nullopt : number_in(at->second);
}

} // namespace insula::actors

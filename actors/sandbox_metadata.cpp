#include "actors/sandbox_metadata.hpp"

#include "base/limits.hpp"

#include <algorithm>
#include <utility>

namespace insula::actors {

namespace {

constexpr std::string_view prefix = "metadata/";
constexpr std::size_t longest_name = 32;

// An earlier version kept one text, and one API wrote it.
constexpr std::string_view older_key = "about";
constexpr std::string_view older_api = "opensandbox";

} // namespace

bool is_metadata(std::string_view key) {
  return key.starts_with(prefix) || key == older_key;
}

api_metadata metadata_of(const record_entries& record) {
  api_metadata all;
  if (const auto older = record.find(older_key); older != record.end() && !older->second.empty())
    all.emplace(older_api, older->second);
  for (auto at = record.lower_bound(prefix); at != record.end() && at->first.starts_with(prefix);
       ++at)
    all.insert_or_assign(at->first.substr(prefix.size()), at->second);
  return all;
}

std::vector<storage::change> metadata_changes(const std::string& api, std::string text) {
  std::vector<storage::change> changes{{std::string{prefix} + api, std::move(text)}};
  if (api == older_api)
    changes.push_back({std::string{older_key}, std::nullopt});
  return changes;
}

std::optional<error> malformed_metadata(const api_metadata& all) {
  std::size_t bytes = 0;
  for (const auto& [api, text] : all) {
    if (api.empty() || api.size() > longest_name ||
        !std::all_of(api.begin(), api.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
      return error{errc::invalid_request, "the name of an API is 1 to 32 letters from a to z"};
    bytes += api.size() + text.size();
  }
  if (bytes > limits::metadata_bytes)
    return error{errc::invalid_request, "the metadata of a sandbox has at most 1,000,000 bytes, "
                                        "this would be " +
                                          std::to_string(bytes)};
  return std::nullopt;
}

} // namespace insula::actors

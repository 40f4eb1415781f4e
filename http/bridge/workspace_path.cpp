#include "http/bridge/workspace_path.hpp"

#include "http/text/percent.hpp"

#include <algorithm>
#include <vector>

namespace insula::http::bridge {

namespace {

/// Calls `take` with every piece of `text` between slashes.
template <class Take>
void for_each_segment(std::string_view text, Take take) {
  for (;;) {
    const auto slash = text.find('/');
    take(text.substr(0, slash));
    if (slash == std::string_view::npos)
      return;
    text.remove_prefix(slash + 1);
  }
}

} // namespace

std::optional<std::string> resolve_in_workspace(std::string_view path) {
  std::vector<std::string_view> kept;
  if (path.empty() || path.front() != '/')
    kept.push_back(workspace.substr(1));
  for_each_segment(path, [&](std::string_view segment) {
    if (segment.empty() || segment == ".")
      return;
    if (segment != "..")
      kept.push_back(segment);
    else if (!kept.empty())
      kept.pop_back();
  });
  if (kept.empty() || kept.front() != workspace.substr(1))
    return std::nullopt;
  std::string resolved;
  for (const auto segment : kept) {
    resolved += '/';
    resolved += segment;
  }
  return resolved;
}

std::string decode_file_path(std::string_view tail) {
  std::string path;
  for_each_segment(tail, [&](std::string_view segment) {
    path += '/';
    path += percent_decode(segment);
  });
  return path;
}

} // namespace insula::http::bridge

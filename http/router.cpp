#include "http/router.hpp"

namespace insula::http {

namespace {

/// Takes the first segment off `path`, which begins with a slash.
std::string_view take_segment(std::string_view& path) {
  path.remove_prefix(1);
  const auto segment = path.substr(0, path.find('/'));
  path.remove_prefix(segment.size());
  return segment;
}

bool matches(std::string_view pattern, std::string_view path, call& what) {
  if (path.empty() || path.front() != '/')
    return false;
  while (!pattern.empty()) {
    const auto wanted = take_segment(pattern);
    if (wanted == "*") {
      what.tail = path.empty() ? path : path.substr(1);
      return true;
    }
    if (path.empty())
      return false;
    const auto segment = take_segment(path);
    if (wanted == ":id")
      what.id = segment;
    else if (wanted != segment)
      return false;
  }
  return path.empty();
}

} // namespace

std::optional<matched_route> find_route(const std::vector<route>& table, const request_head& head) {
  for (const auto& row : table) {
    call what;
    if (row.method == head.method && matches(row.pattern, head.path, what)) {
      what.session_id = head.field("Session-Id");
      return matched_route{&row, std::move(what)};
    }
  }
  return std::nullopt;
}

} // namespace insula::http

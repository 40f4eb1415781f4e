#include "http/router.hpp"

#include <algorithm>

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
    else if (wanted == ":sid" && !segment.empty())
      what.sid = segment;
    else if (wanted != segment)
      return false;
  }
  return path.empty();
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Takes what stands before `mark` off `list`, and the mark.
std::string_view take_until(std::string_view& list, char mark) {
  const auto item = list.substr(0, list.find(mark));
  list.remove_prefix(std::min(list.size(), item.size() + 1));
  return trimmed(item);
}

bool is_gzip(std::string_view coding) {
  constexpr std::string_view name = "gzip";
  return std::equal(coding.begin(), coding.end(), name.begin(), name.end(),
                    [](char a, char b) { return (a | 0x20) == b; });
}

/// `q=0`, `q=0.0` and so on.
bool is_zero_weight(std::string_view parameter) {
  return parameter.size() > 2 && (parameter[0] | 0x20) == 'q' && parameter[1] == '=' &&
         parameter.find_first_not_of("0.", 2) == std::string_view::npos;
}

} // namespace

bool accepts_gzip(std::string_view accept_encoding) {
  while (!accept_encoding.empty()) {
    auto item = take_until(accept_encoding, ',');
    if (is_gzip(take_until(item, ';')))
      return !is_zero_weight(trimmed(item));
  }
  return false;
}

std::optional<matched_route> find_route(const std::vector<route>& table, const request_head& head) {
  for (const auto& row : table) {
    call what;
    if (row.method == head.method && matches(row.pattern, head.path, what)) {
      what.query = head.query;
      what.session_id = head.field("Session-Id");
      what.host = head.field("Host");
      what.origin = head.field("Origin");
      what.cookies = head.field("Cookie");
      what.takes_gzip = accepts_gzip(head.field("Accept-Encoding"));
      what.offer = read_offer(head);
      return matched_route{&row, std::move(what)};
    }
  }
  return std::nullopt;
}

} // namespace insula::http

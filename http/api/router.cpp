#include "http/api/router.hpp"

#include "http/transport/header_text.hpp"

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
    else if (wanted == ":port" && !segment.empty())
      what.port = segment;
    else if (wanted == ":node" && !segment.empty())
      what.node = segment;
    else if (wanted != segment)
      return false;
  }
  return path.empty();
}

/// `q=0`, `q=0.0` and so on.
bool is_zero_weight(std::string_view parameter) {
  return parameter.size() > 2 && (parameter[0] | 0x20) == 'q' && parameter[1] == '=' &&
         parameter.find_first_not_of("0.", 2) == std::string_view::npos;
}

/// What is there and empty has a place in the head.
std::optional<std::string> field_of(const request_head& head, std::string_view name) {
  const auto found = head.field(name);
  return found.data() != nullptr ? std::optional{std::string{found}} : std::nullopt;
}

} // namespace

bool accepts_gzip(std::string_view accept_encoding) {
  while (!accept_encoding.empty()) {
    auto item = take_until(accept_encoding, ',');
    if (same_letters(take_until(item, ';'), "gzip"))
      return !is_zero_weight(trimmed(item));
  }
  return false;
}

bool fits(std::string_view pattern, std::string_view path) {
  call found;
  return matches(pattern, path, found) &&
         (!found.id.empty() || pattern.find(":id") == std::string_view::npos);
}

std::optional<matched_route> find_route(const std::vector<route>& table, const request_head& head) {
  for (const auto& row : table) {
    call what;
    if (row.method == head.method && matches(row.pattern, head.path, what)) {
      what.query = head.query;
      what.session_id = head.field("Session-Id");
      what.idempotency_key = field_of(head, "Idempotency-Key");
      what.last_event_id = field_of(head, "Last-Event-ID");
      what.ends_with_shell = head.field("Insula-End-With-Shell");
      what.for_hydrate = head.field("Insula-For-Hydrate");
      what.host = head.field("Host");
      what.origin = head.field("Origin");
      head.each_field([&](std::string_view name, std::string_view value) {
        if (same_letters(name, "Cookie"))
          (what.cookies += what.cookies.empty() ? "" : "; ") += value;
      });
      what.user_agent = head.field("User-Agent");
      what.content_type = head.field("Content-Type");
      if (!head.head_only) {
        what.range = head.field("Range");
        what.if_range = head.field("If-Range");
      }
      what.takes_gzip = accepts_gzip(head.field("Accept-Encoding"));
      what.offer = read_offer(head);
      return matched_route{&row, std::move(what)};
    }
  }
  return std::nullopt;
}

} // namespace insula::http

#include "http/preview/message.hpp"

#include "http/header_text.hpp"
#include "http/percent.hpp"

#include <algorithm>
#include <array>

namespace insula::http::preview {

namespace {

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& known) {
  return std::any_of(known.begin(), known.end(),
                     [&](auto each) { return same_letters(name, each); });
}

/// Of a request, what is told anew or is for this node alone.
constexpr std::array<std::string_view, 7> told_by_node{
  "Expect",           "Forwarded", "X-Real-IP", "X-Request-Id", token_field, "OPEN-SANDBOX-API-KEY",
  "Insula-Persistent"};

/// Of an answer, what would hold for the whole of this node.
constexpr std::array<std::string_view, 4> of_whole_host{
  "Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Public-Key-Pins"};

constexpr std::string_view forwarded = "X-Forwarded-";
constexpr std::string_view own_cookies = "insula"; ///< They begin with it.

void append(std::string& to, std::string_view name, std::string_view value) {
  (((to += name) += ": ") += value) += "\r\n";
}

/// Without the node's own.
std::string cookies_for_server(std::string_view cookies) {
  std::string kept;
  while (!cookies.empty()) {
    const auto each = take_until(cookies, ';');
    if (each.empty() || each.starts_with(own_cookies))
      continue;
    if (!kept.empty())
      kept += "; ";
    kept += each;
  }
  return kept;
}

/// Sent back for nothing but what is behind the prefix.
std::string cookie_behind(std::string_view cookie, const std::string& prefix) {
  std::string kept{take_until(cookie, ';')};
  std::string path = "/";
  while (!cookie.empty()) {
    auto attribute = take_until(cookie, ';');
    const auto whole = attribute;
    const auto name = take_until(attribute, '=');
    if (same_letters(name, "Path") && attribute.starts_with("/"))
      path = attribute;
    else if (!same_letters(name, "Path") && !same_letters(name, "Domain") && !whole.empty())
      (kept += "; ") += whole;
  }
  return kept + "; Path=" + prefix + path;
}

} // namespace

std::string without_token(std::string_view query) {
  const auto whole = query;
  std::string kept;
  bool any = false;
  while (!query.empty()) {
    const auto pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (percent_decode(pair.substr(0, pair.find('='))) == token_parameter) {
      any = true;
      continue;
    }
    if (!kept.empty())
      kept += '&';
    kept += pair;
  }
  return any ? kept : std::string{whole};
}

bool wants_upgrade(const request_head& head) {
  return !head.old_protocol && !head.chunked && head.content_length.value_or(0) == 0 &&
         !head.field("Upgrade").empty() && names(head.field("Connection"), "upgrade");
}

bool is_repeatable(const request_head& head) {
  constexpr std::array<std::string_view, 5> known{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"};
  return !head.chunked && head.content_length.value_or(0) == 0 &&
         std::find(known.begin(), known.end(), head.method_name) != known.end();
}

std::string write_request(const request_head& head, const address& to, const sender& from) {
  std::string text;
  text.reserve(1024);
  (text += head.method_name) += ' ';
  text += to.path;
  if (head.query.data() != nullptr)
    if (const auto query = without_token(head.query); !query.empty() || head.query.empty())
      (text += '?') += query;
  text += " HTTP/1.1\r\n";
  std::string dropped; // By the client's own wish.
  head.each_field([&](std::string_view name, std::string_view value) {
    if (same_letters(name, "Connection"))
      (dropped += value) += ',';
  });
  head.each_field([&](std::string_view name, std::string_view value) {
    if (is_of_one_connection(name) || is_one_of(name, told_by_node) || is_of_nodes(name) ||
        same_letters(name.substr(0, forwarded.size()), forwarded) ||
        (names(dropped, name) && !same_letters(name, "Host")))
      return;
    if (same_letters(name, "Cookie")) {
      if (const auto kept = cookies_for_server(value); !kept.empty())
        append(text, name, kept);
      return;
    }
    if (from.key_shown && same_letters(name, "Authorization"))
      return;
    if (to.in_execd && same_letters(name, "X-EXECD-ACCESS-TOKEN"))
      return;
    append(text, name, value);
  });
  append(text, "X-Forwarded-For", from.address);
  append(text, "X-Forwarded-Proto", from.encrypted ? "https" : "http");
  if (const auto host = head.field("Host"); !host.empty())
    append(text, "X-Forwarded-Host", host);
  else
    append(text, "Host", "localhost:" + std::to_string(to.port));
  if (!to.prefix.empty())
    append(text, "X-Forwarded-Prefix", to.prefix);
  append(text, "X-Request-Id", from.request_id);
  if (head.chunked)
    append(text, "Transfer-Encoding", "chunked");
  else if (head.content_length)
    append(text, "Content-Length", std::to_string(*head.content_length));
  if (wants_upgrade(head)) {
    append(text, "Connection", "Upgrade");
    append(text, "Upgrade", head.field("Upgrade"));
  }
  return text += "\r\n";
}

std::string answer_line(std::string_view name, std::string_view value, const address& to,
                        std::string_view of_connection) {
  std::string line;
  // It names other doors to this host, and the others are said by the node.
  if (is_of_one_connection(name) || is_of_nodes(name) || names(of_connection, name) ||
      same_letters(name, "Alt-Svc") || same_letters(name, "X-Request-Id") ||
      same_letters(name, "Insula-Recovered"))
    return line;
  if (to.prefix.empty()) {
    append(line, name, value);
    return line;
  }
  if (is_one_of(name, of_whole_host))
    return line;
  const bool from_root = value.starts_with("/") && !value.starts_with("//");
  if (same_letters(name, "Set-Cookie"))
    append(line, name, cookie_behind(value, to.prefix));
  else if (from_root && (same_letters(name, "Location") || same_letters(name, "Content-Location")))
    append(line, name, to.prefix + std::string{value});
  else
    append(line, name, value);
  return line;
}

std::string_view own_lines(const address& to) {
  return to.prefix.empty() ? std::string_view{}
                           : "Content-Security-Policy: sandbox allow-downloads allow-forms "
                             "allow-modals allow-popups allow-scripts\r\n";
}

} // namespace insula::http::preview

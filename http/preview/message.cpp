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
constexpr std::array<std::string_view, 8> told_by_node{"Expect",
                                                       "Forwarded",
                                                       "X-Real-IP",
                                                       "X-Request-Id",
                                                       token_field,
                                                       "OPEN-SANDBOX-API-KEY",
                                                       "X-EXECD-ACCESS-TOKEN",
                                                       "Insula-Persistent"};

/// Of an answer, what a proxy in front of this node would obey: it sends a file of its own instead.
constexpr std::array<std::string_view, 9> for_proxies{"X-Accel-Redirect",
                                                      "X-Archive-Files",
                                                      "X-LiteSpeed-Location",
                                                      "X-Lighttpd-Send-File",
                                                      "X-Lighttpd-Send-Tempfile",
                                                      "X-Reproxy-File",
                                                      "X-Reproxy-URL",
                                                      "X-Sendfile",
                                                      "X-Sendfile2"};

/// Of an answer behind a prefix, what begins so holds for this answer alone, or is an application's
/// own.
constexpr std::array<std::string_view, 15> harmless_beginnings{"Content-",
                                                               "Access-Control-",
                                                               "Sec-WebSocket-",
                                                               "X-",
                                                               "Cross-Origin-",
                                                               "Mcp-",
                                                               "HX-",
                                                               "Grpc-",
                                                               "Tus-",
                                                               "Upload-",
                                                               "Docker-",
                                                               "RateLimit-",
                                                               "Openai-",
                                                               "Ms-",
                                                               "Anthropic-"};

/// The same of whole names.
constexpr std::array<std::string_view, 45> harmless{"Accept-Patch",
                                                    "Accept-Post",
                                                    "Accept-Ranges",
                                                    "Age",
                                                    "Allow",
                                                    "Authentication-Info",
                                                    "Cache-Control",
                                                    "DAV",
                                                    "Date",
                                                    "Deprecation",
                                                    "Digest",
                                                    "ETag",
                                                    "Expires",
                                                    "Feature-Policy",
                                                    "Idempotency-Key",
                                                    "Last-Event-ID",
                                                    "Last-Modified",
                                                    "Link",
                                                    "Location",
                                                    "Lock-Token",
                                                    "MIME-Version",
                                                    "P3P",
                                                    "Permissions-Policy",
                                                    "Pragma",
                                                    "Preference-Applied",
                                                    "RateLimit",
                                                    "Referrer-Policy",
                                                    "Refresh",
                                                    "Repr-Digest",
                                                    "Request-Id",
                                                    "Retry-After",
                                                    "Server",
                                                    "Server-Timing",
                                                    "Set-Cookie",
                                                    "Signature",
                                                    "Signature-Input",
                                                    "SourceMap",
                                                    "Sunset",
                                                    "Timing-Allow-Origin",
                                                    "Traceparent",
                                                    "Tracestate",
                                                    "Vary",
                                                    "Via",
                                                    "Want-Digest",
                                                    "Warning"};

constexpr std::string_view forwarded = "X-Forwarded-";
constexpr std::string_view own_cookies = "insula";  ///< They begin with it,
constexpr std::string_view of_one_host = "__Host-"; ///< perhaps behind this.

void append(std::string& to, std::string_view name, std::string_view value) {
  (((to += name) += ": ") += value) += "\r\n";
}

bool is_own_cookie(std::string_view cookie) {
  if (cookie.starts_with(of_one_host))
    cookie.remove_prefix(of_one_host.size());
  return cookie.starts_with(own_cookies);
}

/// Sent back to the host that it comes from alone, and behind a prefix for nothing but what is
/// there.
std::string cookie_of(std::string_view cookie, const std::string& prefix) {
  std::string kept{take_until(cookie, ';')};
  std::string path = "/";
  while (!cookie.empty()) {
    auto attribute = take_until(cookie, ';');
    const auto whole = attribute;
    const auto name = take_until(attribute, '=');
    if (!prefix.empty() && same_letters(name, "Path")) {
      if (attribute.starts_with("/"))
        path = attribute;
    } else if (!same_letters(name, "Domain") && !whole.empty()) {
      (kept += "; ") += whole;
    }
  }
  return prefix.empty() ? kept : kept + "; Path=" + prefix + path;
}

bool is_harmless(std::string_view name) {
  return is_one_of(name, harmless) ||
         std::any_of(harmless_beginnings.begin(), harmless_beginnings.end(),
                     [&](auto each) { return same_letters(name.substr(0, each.size()), each); });
}

/// Credentials for other schemes are remembered by browsers for the whole origin, and sent along
/// to every sandbox that asks with the same words.
bool asks_for_bearer(std::string_view challenge) {
  constexpr std::string_view bearer = "Bearer";
  const auto names_scheme = [&](std::string_view scheme) {
    for (std::size_t at = 0; at + scheme.size() <= challenge.size(); ++at)
      if (same_letters(challenge.substr(at, scheme.size()), scheme))
        return true;
    return false;
  };
  return same_letters(challenge.substr(0, bearer.size()), bearer) && !names_scheme("basic") &&
         !names_scheme("digest") && !names_scheme("negotiate") && !names_scheme("ntlm");
}

} // namespace

std::string cookies_for_server(std::string_view cookies, const key_check* key) {
  std::string kept;
  while (!cookies.empty()) {
    const auto each = take_until(cookies, ';');
    if (each.empty() || is_own_cookie(each) || (key != nullptr && key->is_in(each)))
      continue;
    if (!kept.empty())
      kept += "; ";
    kept += each;
  }
  return kept;
}

bool shows_key(std::string_view name, std::string_view value, const key_check* key) {
  if (key == nullptr || same_letters(name, "Cookie"))
    return false;
  return same_letters(name, "Host") ? key->is_in_address(value) : key->is_in(value);
}

std::string without_token(std::string_view query, const key_check* key) {
  const auto whole = query;
  std::string kept;
  bool any = false;
  while (!query.empty()) {
    const auto pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (percent_decode(pair.substr(0, pair.find('='))) == token_parameter ||
        (key != nullptr && key->is_in(pair))) {
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
    if (const auto query = without_token(head.query, from.key);
        !query.empty() || head.query.empty())
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
      if (const auto kept = cookies_for_server(value, from.key); !kept.empty())
        append(text, name, kept);
      return;
    }
    if (shows_key(name, value, from.key))
      return;
    append(text, name, value);
  });
  append(text, "X-Forwarded-For", from.address);
  append(text, "X-Forwarded-Proto", from.encrypted ? "https" : "http");
  if (const auto host = head.field("Host"); !host.empty() && !shows_key("Host", host, from.key))
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
      same_letters(name, "Insula-Recovered") || is_one_of(name, for_proxies))
    return line;
  const bool is_cookie = same_letters(name, "Set-Cookie");
  if (to.prefix.empty()) {
    append(line, name, is_cookie ? cookie_of(value, {}) : std::string{value});
    return line;
  }
  const bool is_challenge = same_letters(name, "WWW-Authenticate");
  if (is_challenge ? !asks_for_bearer(value) : !is_harmless(name))
    return line;
  const bool from_root = value.starts_with("/") && !value.starts_with("//");
  if (is_cookie)
    append(line, name, cookie_of(value, to.prefix));
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

#include "http/preview/message.hpp"

#include "http/proxy/request_fields.hpp"
#include "http/text/header_text.hpp"
#include "http/transport/request_semantics.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace insula::http::preview {

namespace {

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& known) {
  return std::any_of(known.begin(), known.end(),
                     [&](auto each) { return same_letters(name, each); });
}

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
constexpr std::array<std::string_view, 46> harmless{"Accept-Patch",
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
                                                    "Trailer",
                                                    "Vary",
                                                    "Via",
                                                    "Want-Digest",
                                                    "Warning"};

void append(std::string& to, std::string_view name, std::string_view value) {
  (((to += name) += ": ") += value) += "\r\n";
}

/// A server that knows of its prefix, by X-Forwarded-Prefix, begins paths with it.
std::string_view without_prefix(std::string_view path, std::string_view prefix) {
  const auto rest = path.starts_with(prefix) ? path.substr(prefix.size()) : std::string_view{};
  const bool knows =
    path == prefix || (!rest.empty() && (rest[0] == '/' || rest[0] == '?' || rest[0] == '#'));
  return !knows ? path : rest.empty() ? "/" : rest;
}

/// `name` and `port` of an authority; no port: empty.
std::pair<std::string_view, std::string_view> split_authority(std::string_view authority) {
  const auto bracket = authority.rfind(']');
  const auto colon = authority.rfind(':');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket))
    return {authority, {}};
  return {authority.substr(0, colon), authority.substr(colon + 1)};
}

/// Names by which a server in a sandbox calls itself.
bool is_loopback(std::string_view name) {
  const bool is_of_127 =
    name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string_view::npos;
  return same_letters(name, "localhost") || is_of_127 || name == "0.0.0.0" || name == "[::1]" ||
         name == "[::]";
}

/// Whether the server is meant: by what the client calls it, or by its port on its own loopback. By
/// another scheme than the client's it is another door, which would lead here again without end.
bool is_server(std::string_view authority, std::string_view scheme, const address& to) {
  const auto [name, port] = split_authority(authority);
  const std::string_view usual = same_letters(scheme, "https") ? "443" : "80";
  if (is_loopback(name) && (port.empty() ? usual : port) == std::to_string(to.port))
    return true;
  const auto [host, host_port] = split_authority(to.host);
  const std::string_view spoken = to.encrypted ? "https" : "http";
  const std::string_view spoken_port = to.encrypted ? "443" : "80";
  const auto counts = [&](std::string_view number) {
    return number.empty() ? spoken_port : number;
  };
  return !host.empty() && same_letters(name, host) && counts(port) == counts(host_port) &&
         (scheme.empty() || same_letters(scheme, spoken));
}

/// What the client asks for where the server says `reference`, behind a prefix.
std::string reference_of(std::string_view reference, const address& to) {
  std::string_view path = reference;
  const auto slashes = reference.find("//");
  const auto scheme =
    reference.substr(0, slashes == 0 || slashes == std::string_view::npos ? 0 : slashes - 1);
  const bool in_full = slashes == 0 || (slashes != std::string_view::npos &&
                                        (same_letters(reference.substr(0, slashes), "http:") ||
                                         same_letters(reference.substr(0, slashes), "https:")));
  if (in_full) {
    path.remove_prefix(slashes + 2);
    const auto authority = path.substr(0, path.find_first_of("/?#\\"));
    if (!is_server(authority, scheme, to))
      return std::string{reference};
    path.remove_prefix(authority.size());
  } else if (!path.starts_with("/")) {
    return std::string{reference};
  }
  path = without_prefix(path, to.prefix);
  return to.prefix + (path.starts_with("/") ? "" : "/") + std::string{path};
}

/// `5; url=/there`, with or without quotes.
std::string refresh_of(std::string_view value, const address& to) {
  auto at = value.find_first_of(";,");
  const auto skip_blanks = [&] { at = value.find_first_not_of(" \t", at); };
  if (at == std::string_view::npos)
    return std::string{value};
  ++at;
  skip_blanks();
  constexpr std::string_view url = "url";
  if (at != std::string_view::npos && same_letters(value.substr(at, url.size()), url)) {
    auto behind = value.find_first_not_of(" \t", at + url.size());
    if (behind != std::string_view::npos && value[behind] == '=') {
      at = behind + 1;
      skip_blanks();
    }
  }
  if (at == std::string_view::npos)
    return std::string{value};
  const char quote = value[at] == '"' || value[at] == '\'' ? value[at++] : '\0';
  const auto end = quote == '\0' ? value.size() : std::min(value.find(quote, at), value.size());
  return std::string{value.substr(0, at)} + reference_of(value.substr(at, end - at), to) +
         std::string{value.substr(end)};
}

/// `</there>; rel=next, <more>`
std::string link_of(std::string_view value, const address& to) {
  std::string told;
  bool quoted = false;
  for (std::size_t at = 0; at < value.size(); ++at) {
    const auto end = !quoted && value[at] == '<' ? value.find('>', at) : std::string_view::npos;
    if (end != std::string_view::npos) {
      told += '<' + reference_of(value.substr(at + 1, end - at - 1), to);
      at = end;
    } else if (quoted && value[at] == '\\' && at + 1 < value.size()) {
      told += value[at++];
    } else if (value[at] == '"') {
      quoted = !quoted;
    }
    told += value[at];
  }
  return told;
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
      const auto below = without_prefix(attribute, prefix);
      if (below.starts_with("/"))
        path = below;
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

std::string write_request(const request_head& head, const address& to, const sender& from) {
  std::string text;
  text.reserve(1024);
  (text += head.method_name) += ' ';
  text += to.path;
  if (head.query.data() != nullptr)
    if (const auto query = proxy::without_token(head.query, from.key);
        !query.empty() || head.query.empty())
      (text += '?') += query;
  text += " HTTP/1.1\r\n";
  const auto options = connection_options(head);
  head.each_field([&](std::string_view name, std::string_view value) {
    const bool is_other_host = same_letters(name, "Host") && value != to.host && to.named_by;
    text += proxy::request_line(name, is_other_host ? to.host : value, from.key, options);
  });
  append(text, "X-Forwarded-For", from.address);
  append(text, "X-Forwarded-Proto", from.encrypted ? "https" : "http");
  if (const std::string_view host = to.named_by ? to.host : head.field("Host");
      !host.empty() && !proxy::shows_key("Host", host, from.key))
    append(text, "X-Forwarded-Host", host);
  else
    append(text, "Host", "localhost:" + std::to_string(to.port));
  if (to.named_by && head.field("Host").empty()) // Of HTTP/1.0.
    append(text, "Host", to.host);
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
  } else if (takes_trailers(head)) {
    append(text, "Connection", "TE");
    append(text, "TE", "trailers");
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
  if (is_cookie)
    append(line, name, cookie_of(value, to.prefix));
  else if (same_letters(name, "Location") || same_letters(name, "Content-Location"))
    append(line, name, reference_of(value, to));
  else if (same_letters(name, "Refresh"))
    append(line, name, refresh_of(value, to));
  else if (same_letters(name, "Link"))
    append(line, name, link_of(value, to));
  else
    append(line, name, value);
  return line;
}

std::string_view own_lines(const address& to) {
  if (to.is_forwarded)
    return "Vary: X-Forwarded-Host\r\n";
  return to.prefix.empty() ? std::string_view{}
                           : "Content-Security-Policy: sandbox allow-downloads allow-forms "
                             "allow-modals allow-popups allow-scripts\r\n";
}

} // namespace insula::http::preview

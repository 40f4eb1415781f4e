#include "http/proxy/request_fields.hpp"

#include "http/text/header_text.hpp"
#include "http/text/percent.hpp"

#include <algorithm>
#include <array>

namespace insula::http::proxy {

namespace {

/// Of a request, what is told anew or is for this node alone.
constexpr std::array<std::string_view, 10> told_by_node{"Expect",
                                                        "Forwarded",
                                                        "X-Real-IP",
                                                        "X-Request-Id",
                                                        token_field,
                                                        "OPEN-SANDBOX-API-KEY",
                                                        "X-EXECD-ACCESS-TOKEN",
                                                        "Insula-Persistent",
                                                        "Insula-Privileges",
                                                        "Insula-Image"};

constexpr std::string_view forwarded = "X-Forwarded-";
constexpr std::string_view own_cookies = "insula";  ///< They begin with it,
constexpr std::string_view of_one_host = "__Host-"; ///< perhaps behind this.

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& known) {
  return std::any_of(known.begin(), known.end(),
                     [&](auto each) { return same_letters(name, each); });
}

void append(std::string& to, std::string_view name, std::string_view value) {
  (((to += name) += ": ") += value) += "\r\n";
}

bool is_own_cookie(std::string_view cookie) {
  if (cookie.starts_with(of_one_host))
    cookie.remove_prefix(of_one_host.size());
  return cookie.starts_with(own_cookies);
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

/// A field of a request, as the server is to see it, a line; empty: it stays here.
std::string request_line(std::string_view name, std::string_view value, const key_check* key,
                         std::string_view of_connection) {
  std::string line;
  if (is_of_one_connection(name) || is_one_of(name, told_by_node) || is_of_nodes(name) ||
      same_letters(name.substr(0, forwarded.size()), forwarded) ||
      (names(of_connection, name) && !same_letters(name, "Host")))
    return line;
  if (same_letters(name, "Cookie")) {
    if (const auto kept = cookies_for_server(value, key); !kept.empty())
      append(line, name, kept);
  } else if (!shows_key(name, value, key)) {
    append(line, name, value);
  }
  return line;
}

std::string trailer_line(std::string_view name, std::string_view value, const key_check* key,
                         std::string_view of_connection) {
  return same_letters(name, "Host") ? std::string{} : request_line(name, value, key, of_connection);
}

} // namespace insula::http::proxy

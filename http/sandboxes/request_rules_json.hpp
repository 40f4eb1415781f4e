#pragma once

#include "base/error.hpp"
#include "base/request_rules.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"

#include <string>
#include <string_view>

/// Rules about single requests as JSON, in the words that APIs share. Texts are read strictly: a
/// member that is not known is an error that names it, since a rule that is overlooked is a hole.
/// Errors: invalid_request, which never have a value of a header.
namespace insula::http {

/// What stands in answers for values that nobody is told, so no rule may have it as its value.
inline constexpr std::string_view redacted = "<redacted>";

/// {"path": M, "method": ["…"], "queryString": [{"key": M, "value": M}], "headers": [the same]},
/// with M = {"exact" | "startsWith" | "regex": "…"}.
result<request_match> read_match(const json::value& from);
/// {"name": "value"}
result<header_list> read_headers(const json::value& from);

template <class Writer>
void write_match(Writer& out, const text_match& match) {
  constexpr std::string_view names[] = {"exact", "startsWith", "regex"};
  out.begin_object();
  out.member(names[static_cast<std::size_t>(match.how)], match.text);
  out.end_object();
}

template <class Writer>
void write_pairs(Writer& out, std::string_view name, const std::vector<pair_match>& all) {
  if (all.empty())
    return;
  out.key(name).begin_array();
  for (const auto& each : all) {
    out.begin_object();
    if (each.key)
      write_match(out.key("key"), *each.key);
    if (each.value)
      write_match(out.key("value"), *each.value);
    out.end_object();
  }
  out.end_array();
}

/// The member "match", unless it matches all.
template <class Writer>
void write_match_member(Writer& out, const request_match& match) {
  if (match == request_match{})
    return;
  out.key("match").begin_object();
  if (match.path)
    write_match(out.key("path"), *match.path);
  if (!match.methods.empty()) {
    out.key("method").begin_array();
    for (const auto& each : match.methods)
      out.text(each);
    out.end_array();
  }
  write_pairs(out, "queryString", match.query);
  write_pairs(out, "headers", match.headers);
  out.end_object();
}

/// The member "headerNames".
template <class Writer>
void write_header_names(Writer& out, const header_list& headers) {
  out.key("headerNames").begin_array();
  for (const auto& [name, value] : headers)
    out.text(name);
  out.end_array();
}

} // namespace insula::http

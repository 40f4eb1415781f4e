#include "http/sandboxes/request_rules_json.hpp"

#include "http/sandboxes/policy_json.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace insula::http {

namespace {

error wrong_rule(std::string why) {
  return {errc::invalid_request, std::move(why)};
}

result<text_match> read_text_match(const json::value& from, const std::string& where) {
  if (!from.IsObject() || from.MemberCount() != 1)
    return wrong_rule(where + " must have one of exact, startsWith and regex");
  if (auto unknown = only(from, {"exact", "startsWith", "regex"}, " in " + where))
    return *unknown;
  const auto& member = *from.MemberBegin();
  if (!member.value.IsString())
    return wrong_rule(where + ": expected a string");
  const auto name = json::text_of(member.name);
  return text_match{name == "exact"        ? text_match::kind::exact
                    : name == "startsWith" ? text_match::kind::prefix
                                           : text_match::kind::regex,
                    json::string_of(member.value)};
}

result<std::vector<pair_match>> read_pairs(const json::value& from, const std::string& where) {
  if (!from.IsArray())
    return wrong_rule(where + " must be an array");
  std::vector<pair_match> all;
  for (const auto& each : from.GetArray()) {
    if (!each.IsObject())
      return wrong_rule(where + "'s elements must be objects");
    if (auto unknown = only(each, {"key", "value"}, " in " + where))
      return *unknown;
    auto& made = all.emplace_back();
    for (const auto& [name, to] : {std::pair{"key", &made.key}, std::pair{"value", &made.value}}) {
      const auto* given = json::find(each, name);
      if (given == nullptr)
        continue;
      auto match = read_text_match(*given, where + '.' + name);
      if (!match)
        return match.reason();
      *to = std::move(*match);
    }
  }
  return all;
}

} // namespace

result<request_match> read_match(const json::value& from) {
  if (!from.IsObject())
    return wrong_rule("match must be an object");
  if (auto unknown = only(from, {"path", "method", "queryString", "headers"}, " in match"))
    return *unknown;
  request_match made;
  if (const auto* path = json::find(from, "path")) {
    auto match = read_text_match(*path, "match.path");
    if (!match)
      return match.reason();
    made.path = std::move(*match);
  }
  if (const auto* methods = json::find(from, "method")) {
    if (!methods->IsArray())
      return wrong_rule("match.method must be an array of strings");
    for (const auto& each : methods->GetArray()) {
      if (!each.IsString())
        return wrong_rule("match.method must be an array of strings");
      auto name = json::string_of(each);
      std::transform(name.begin(), name.end(), name.begin(), [](char c) {
        return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
      });
      made.methods.push_back(std::move(name));
    }
  }
  for (const auto& [name, to] :
       {std::pair{"queryString", &made.query}, std::pair{"headers", &made.headers}}) {
    const auto* given = json::find(from, name);
    if (given == nullptr)
      continue;
    auto all = read_pairs(*given, std::string{"match."} + name);
    if (!all)
      return all.reason();
    *to = std::move(*all);
  }
  return made;
}

result<header_list> read_headers(const json::value& from) {
  if (!from.IsObject())
    return wrong_rule("headers must be an object of strings");
  header_list all;
  for (const auto& [key, value] : from.GetObject()) {
    auto name = json::string_of(key);
    if (!value.IsString())
      return wrong_rule("header \"" + name.substr(0, 64) + "\": expected a string");
    if (json::text_of(value) == redacted)
      return wrong_rule("header \"" + name.substr(0, 64) +
                        "\" has the value <redacted>, which answers show in place of a value");
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    all.emplace_back(std::move(name), json::string_of(value));
  }
  return all;
}

} // namespace insula::http

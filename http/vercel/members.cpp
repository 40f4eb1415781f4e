#include "http/vercel/members.hpp"

#include <algorithm>

namespace insula::http::vercel {

namespace {

bool has_nul(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

} // namespace

std::optional<refusal> read_object(std::string_view body, json::document& into) {
  if (!json::parse(body, into) || !into.IsObject())
    return bad_request("the body must be a JSON object");
  return std::nullopt;
}

const json::value* given(const json::value& in, std::string_view name) {
  return json::find(in, name, {false, true});
}

std::optional<std::int64_t> whole_number(const json::value& value) {
  if (value.IsInt64())
    return value.GetInt64();
  if (value.IsDouble() && value.GetDouble() == static_cast<double>(static_cast<std::int64_t>(
                                                 std::clamp(value.GetDouble(), -9e15, 9e15))))
    return static_cast<std::int64_t>(value.GetDouble());
  return std::nullopt;
}

std::optional<refusal> read_text(const json::value& in, const char* name, std::string& into) {
  const auto* value = given(in, name);
  if (value == nullptr)
    return std::nullopt;
  if (!value->IsString())
    return bad_request(std::string{name} + " must be a string");
  into = json::string_of(*value);
  if (has_nul(into))
    return bad_request(std::string{name} + " must have no NUL");
  return std::nullopt;
}

std::optional<refusal> read_list(const json::value& in, const char* name,
                                 std::vector<std::string>& into) {
  const auto* value = given(in, name);
  if (value == nullptr)
    return std::nullopt;
  if (!value->IsArray())
    return bad_request(std::string{name} + " must be an array of strings");
  for (const auto& each : value->GetArray()) {
    if (!each.IsString())
      return bad_request(std::string{name} + " must be an array of strings");
    into.push_back(json::string_of(each));
    if (has_nul(into.back()))
      return bad_request(std::string{name} + " must have no NUL");
  }
  return std::nullopt;
}

std::optional<refusal> read_flag(const json::value& in, const char* name, bool& into) {
  const auto* value = given(in, name);
  if (value == nullptr)
    return std::nullopt;
  if (!value->IsBool())
    return bad_request(std::string{name} + " must be true or false");
  into = value->GetBool();
  return std::nullopt;
}

std::optional<refusal> read_texts(const json::value& in, const char* name,
                                  std::map<std::string, std::string>& into) {
  const auto* value = given(in, name);
  if (value == nullptr)
    return std::nullopt;
  if (!value->IsObject())
    return bad_request(std::string{name} + " must be an object of strings");
  into.clear();
  for (const auto& [key, text] : value->GetObject()) {
    if (!text.IsString())
      return bad_request(std::string{name} + "." + json::string_of(key) + " must be a string");
    into[json::string_of(key)] = json::string_of(text);
  }
  return std::nullopt;
}

std::optional<refusal> read_environment(const json::value& in,
                                        std::map<std::string, std::string>& into) {
  if (auto wrong = read_texts(in, "env", into))
    return wrong;
  if (into.size() > most_variables)
    return bad_request("env has too many variables");
  for (const auto& [name, text] : into)
    if (name.empty() || name.find('=') != std::string::npos || has_nul(name) || has_nul(text))
      return bad_request("env has a name or value that no environment can have");
  return std::nullopt;
}

} // namespace insula::http::vercel

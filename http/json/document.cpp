#include "http/json/document.hpp"

#include "http/text/header_text.hpp"

namespace insula::http::json {

bool parse(std::string_view text, document& into, strictness how) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (how.byte_order_mark) {
    if (text.starts_with(byte_order_mark))
      text.remove_prefix(byte_order_mark.size());
    // The reader takes a NUL for the end of the text, whatever comes after it.
    if (text.find('\0') != std::string_view::npos)
      return false;
  }
  constexpr unsigned common = rapidjson::kParseIterativeFlag;
  if (how.any_rest)
    into.Parse<common | rapidjson::kParseStopWhenDoneFlag>(text.data(), text.size());
  else if (how.checks_utf8)
    into.Parse<common | rapidjson::kParseValidateEncodingFlag>(text.data(), text.size());
  else
    into.Parse<common>(text.data(), text.size());
  return !into.HasParseError();
}

const value* find(const value& in, std::string_view name, member_rule rule) {
  const value* found = nullptr;
  if (!in.IsObject())
    return found;
  for (const auto& each : in.GetObject()) {
    const auto known = text_of(each.name);
    if (rule.any_case ? same_letters(known, name) : known == name)
      found = rule.null_is_absent && each.value.IsNull() ? nullptr : &each.value;
  }
  return found;
}

std::string_view text_of(const value& from) {
  return {from.GetString(), from.GetStringLength()};
}

std::string string_of(const value& from) {
  return std::string{text_of(from)};
}

bool parse_lenient_object(std::string_view text, document& into) {
  if (!parse(text, into, {.any_rest = true}))
    return false;
  if (into.IsNull())
    into.SetObject();
  return into.IsObject();
}

error wrong(std::string why) {
  return {errc::invalid_request, std::move(why)};
}

} // namespace insula::http::json

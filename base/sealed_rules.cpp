#include "base/sealed_rules.hpp"

#include <re2/re2.h>

#include <utility>

namespace insula {

namespace {

constexpr std::string_view rules_purpose = "request rules", key_purpose = "authority key";

result<void> check_expression(const std::optional<text_match>& match) {
  if (!match || match->how != text_match::kind::regex)
    return {};
  re2::RE2::Options options; // As the broker has them.
  options.set_log_errors(false);
  options.set_max_mem(regex_memory);
  options.set_encoding(re2::RE2::Options::EncodingLatin1);
  const re2::RE2 made{match->text, options};
  if (made.ok())
    return {};
  return error{errc::invalid_request, "the regular expression \"" + match->text.substr(0, 64) +
                                        "\" is none: " + made.error()};
}

result<void> check_expressions(const request_match& match) {
  if (auto ok = check_expression(match.path); !ok)
    return ok;
  for (const auto* pairs : {&match.query, &match.headers})
    for (const auto& each : *pairs)
      for (const auto* part : {&each.key, &each.value})
        if (auto ok = check_expression(*part); !ok)
          return ok;
  return {};
}

} // namespace

result<sealed_rules> seal_rules(const secret_box& with, const std::vector<request_rule>& rules) {
  if (auto ok = check(rules); !ok)
    return ok.reason();
  for (const auto& each : rules)
    if (auto ok = check_expressions(each.match); !ok)
      return ok.reason();
  auto plain = to_text(rules);
  auto sealed = with.seal(plain, rules_purpose);
  wipe(plain);
  if (!sealed)
    return sealed.reason();
  return sealed_rules{to_text(without_values(rules)), std::move(*sealed)};
}

result<std::vector<request_rule>> open_rules(const secret_box& with, const std::string& sealed) {
  auto plain = with.open(sealed, rules_purpose);
  if (!plain)
    return plain.reason();
  auto rules = rules_from_text(*plain);
  wipe(*plain);
  return rules;
}

std::vector<request_rule> without_values(std::vector<request_rule> rules) {
  for (auto& each : rules) {
    header_list* headers = nullptr;
    if (auto* set = std::get_if<transform_action>(&each.action))
      headers = &set->headers;
    if (auto* said = std::get_if<respond_action>(&each.action)) {
      headers = &said->headers;
      said->body.clear();
    }
    if (headers != nullptr)
      for (auto& [name, value] : *headers)
        value.clear();
  }
  return rules;
}

result<std::string> seal_key(const secret_box& with, const std::string& pem) {
  return with.seal(pem, key_purpose);
}

result<std::string> open_key(const secret_box& with, const std::string& sealed) {
  return with.open(sealed, key_purpose);
}

} // namespace insula

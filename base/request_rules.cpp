#include "base/request_rules.hpp"

#include "base/http_words.hpp"
#include "base/network.hpp"
#include "base/packed_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace insula {

namespace {

constexpr std::size_t max_url_bytes = 2048, max_method_bytes = 32, max_methods = 32, max_pairs = 32,
                      max_match_bytes = 4096, max_headers = 64, max_name_bytes = 256,
                      max_value_bytes = 16u << 10, max_body_bytes = 64u << 10;
constexpr std::uint64_t https_port = 443;

error wrong(std::string what) {
  return {errc::invalid_request, std::move(what)};
}

/// They say how a message is carried, which is the broker's to say; or whom it is for, which a rule
/// has decided by.
constexpr std::array own_headers{
  std::string_view{"connection"},       std::string_view{"content-length"},
  std::string_view{"expect"},           std::string_view{"host"},
  std::string_view{"http2-settings"},   std::string_view{"keep-alive"},
  std::string_view{"proxy-connection"}, std::string_view{"te"},
  std::string_view{"trailer"},          std::string_view{"transfer-encoding"},
  std::string_view{"upgrade"}};

result<void> check_headers(const header_list& headers) {
  if (headers.size() > max_headers)
    return wrong("a rule has at most " + std::to_string(max_headers) + " headers");
  std::set<std::string> names;
  for (const auto& [name, value] : headers) {
    if (auto ok = check_header(name, value); !ok)
      return ok;
    if (!names.insert(lower_case(name)).second)
      return wrong("header \"" + name + "\" is there twice");
  }
  return {};
}

result<void> check_match(const std::optional<text_match>& match) {
  if (match && match->text.size() > max_match_bytes)
    return wrong("a match has more than " + std::to_string(max_match_bytes) + " bytes");
  return {};
}

result<void> check_pairs(const std::vector<pair_match>& all) {
  if (all.size() > max_pairs)
    return wrong("a match has at most " + std::to_string(max_pairs) +
                 " entries of a query or of headers");
  for (const auto& each : all)
    for (const auto* part : {&each.key, &each.value})
      if (auto ok = check_match(*part); !ok)
        return ok;
  return {};
}

result<void> check_action(const transform_action& action) {
  return check_headers(action.headers);
}
result<void> check_action(const forward_action& action) {
  auto url = normalise_forward_url(action.url);
  if (!url)
    return url.reason();
  return *url == action.url ? result<void>{} : wrong("forward: the URL is not in its normal form");
}
result<void> check_action(const respond_action& action) {
  if (action.status < 200 || action.status > 599)
    return wrong("respond: the status must be 200 to 599");
  if (action.body.size() > max_body_bytes)
    return wrong("respond: the body has more than " + std::to_string(max_body_bytes) + " bytes");
  const bool has_none = action.status == 204 || action.status == 205 || action.status == 304;
  if (has_none && !action.body.empty())
    return wrong("respond: an answer " + std::to_string(action.status) + " has no body");
  return check_headers(action.headers);
}

/// What all rules together cost beside their text.
struct cost {
  std::size_t expressions = 0, expression_bytes = 0, header_bytes = 0;

  void add(const std::optional<text_match>& match) {
    if (!match || match->how != text_match::kind::regex)
      return;
    ++expressions;
    expression_bytes += match->text.size();
  }
  void add(const std::vector<pair_match>& pairs) {
    for (const auto& each : pairs) {
      add(each.key);
      add(each.value);
    }
  }
  void add(const header_list& headers) {
    for (const auto& [name, value] : headers)
      header_bytes += name.size() + value.size();
  }
  void add(const request_rule& rule) {
    add(rule.match.path);
    add(rule.match.query);
    add(rule.match.headers);
    if (const auto* sets = std::get_if<transform_action>(&rule.action))
      add(sets->headers);
    if (const auto* says = std::get_if<respond_action>(&rule.action))
      add(says->headers);
  }
};

result<void> check_cost(const std::vector<request_rule>& rules) {
  cost all;
  for (const auto& each : rules)
    all.add(each);
  if (all.expressions > max_rule_expressions)
    return error{errc::limit_reached, "the rules about requests of a sandbox have at most " +
                                        std::to_string(max_rule_expressions) +
                                        " regular expressions"};
  if (all.expression_bytes > max_expression_bytes)
    return error{errc::limit_reached,
                 "the regular expressions of a sandbox's rules about requests have at most " +
                   std::to_string(max_expression_bytes) + " bytes"};
  if (all.header_bytes > max_rule_header_bytes)
    return error{errc::limit_reached, "the headers of the rules about requests of a sandbox have " +
                                        ("at most " + std::to_string(max_rule_header_bytes)) +
                                        " bytes"};
  return {};
}

void write(packed_writer& to, const std::optional<text_match>& match) {
  to.number(match ? 1 + static_cast<std::uint64_t>(match->how) : 0);
  if (match)
    to.text(match->text);
}
void write(packed_writer& to, const std::vector<pair_match>& all) {
  to.number(all.size());
  for (const auto& each : all) {
    write(to, each.key);
    write(to, each.value);
  }
}
void write(packed_writer& to, const header_list& all) {
  to.number(all.size());
  for (const auto& [name, value] : all)
    to.text(name).text(value);
}
void write(packed_writer& to, const transform_action& action) {
  write(to, action.headers);
}
void write(packed_writer& to, const forward_action& action) {
  to.text(action.url);
}
void write(packed_writer& to, const respond_action& action) {
  to.number(action.status);
  write(to, action.headers);
  to.text(action.body);
}

void read(packed_reader& from, std::optional<text_match>& into) {
  const auto how = from.count(3);
  if (how != 0)
    into = text_match{static_cast<text_match::kind>(how - 1), from.text()};
}
void read(packed_reader& from, std::vector<pair_match>& into) {
  for (auto left = from.count(max_pairs); left > 0; --left) {
    auto& each = into.emplace_back();
    read(from, each.key);
    read(from, each.value);
  }
}
void read(packed_reader& from, header_list& into) {
  for (auto left = from.count(max_headers); left > 0; --left) {
    auto name = from.text();
    into.emplace_back(std::move(name), from.text());
  }
}

} // namespace

result<std::string> normalise_forward_url(std::string_view url) {
  constexpr std::string_view scheme = "https://";
  if (url.size() > max_url_bytes)
    return wrong("the URL has more than " + std::to_string(max_url_bytes) + " bytes");
  if (lower_case(url.substr(0, scheme.size())) != scheme)
    return wrong("the URL must begin with https://");
  url.remove_prefix(scheme.size());
  if (!std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c < 0x7f; }))
    return wrong("the URL has a character that must be encoded");
  if (url.find_first_of("?#") != std::string_view::npos)
    return wrong("the URL must have no query and no fragment");
  const auto slash = url.find('/');
  auto authority = url.substr(0, slash);
  std::string path{slash == std::string_view::npos ? std::string_view{} : url.substr(slash)};
  if (authority.find('@') != std::string_view::npos)
    return wrong("the URL must have no user");
  std::uint64_t port = https_port;
  if (const auto colon = authority.rfind(':');
      colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos) {
    const auto text = authority.substr(colon + 1);
    const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (text.empty() || why != std::errc{} || end != text.data() + text.size() || port == 0 ||
        port > 65535)
      return wrong("the URL has a port that is not 1 to 65535");
    authority = authority.substr(0, colon);
  }
  // An address is its own name, if it is spelled as the kernel does.
  const auto host = normalise_target(authority);
  if (!host || is_subnet(*host) || host->find('*') != std::string::npos)
    return wrong("the URL must have the name of a host");
  while (path.ends_with('/'))
    path.pop_back();
  std::string made{scheme};
  made += *host;
  if (port != https_port)
    made += ':' + std::to_string(port);
  return made + path;
}

forward_place place_of(const forward_action& action) {
  constexpr std::string_view scheme = "https://";
  const auto rest = std::string_view{action.url}.substr(scheme.size());
  const auto authority = rest.substr(0, rest.find('/'));
  const auto colon = authority.find(':');
  auto port = static_cast<std::uint16_t>(https_port);
  if (colon != std::string_view::npos)
    std::from_chars(authority.data() + colon + 1, authority.data() + authority.size(), port);
  return {std::string{authority}, std::string{authority.substr(0, colon)}, port,
          std::string{rest.substr(authority.size())}};
}

result<void> check_header(std::string_view name, std::string_view value) {
  if (!is_token(name) || name.size() > max_name_bytes)
    return wrong("\"" + std::string{name.substr(0, 64)} + "\" is no name of a header");
  if (std::find(own_headers.begin(), own_headers.end(), lower_case(name)) != own_headers.end())
    return wrong("header \"" + std::string{name} + "\" cannot be set");
  if (!is_header_value(value) || value.size() > max_value_bytes)
    return wrong("the value of header \"" + std::string{name} +
                 "\" has a control character, or more than " + std::to_string(max_value_bytes) +
                 " bytes");
  return {};
}

result<void> check(const std::vector<request_rule>& rules) {
  if (rules.size() > max_request_rules)
    return error{errc::limit_reached, "a sandbox has at most " + std::to_string(max_request_rules) +
                                        " rules about requests"};
  for (const auto& each : rules) {
    const auto domain = normalise_target(each.domain);
    if (!domain || is_subnet(*domain) || *domain != each.domain)
      return wrong("a rule about requests is for a domain");
    if (auto ok = check_match(each.match.path); !ok)
      return ok;
    if (each.match.methods.size() > max_methods)
      return wrong("a match has at most " + std::to_string(max_methods) + " methods");
    for (const auto& method : each.match.methods)
      if (!is_token(method) || method.size() > max_method_bytes)
        return wrong("a match has a method that is none");
    for (const auto* pairs : {&each.match.query, &each.match.headers})
      if (auto ok = check_pairs(*pairs); !ok)
        return ok;
    if (auto ok = std::visit([](const auto& action) { return check_action(action); }, each.action);
        !ok)
      return ok;
  }
  if (auto ok = check_cost(rules); !ok)
    return ok;
  if (to_text(rules).size() > max_rules_bytes)
    return error{errc::limit_reached, "the rules about requests of a sandbox have at most " +
                                        std::to_string(max_rules_bytes) + " bytes"};
  return {};
}

std::string to_text(const std::vector<request_rule>& rules) {
  packed_writer to;
  to.number(rules.size());
  for (const auto& each : rules) {
    to.text(each.domain);
    write(to, each.match.path);
    to.number(each.match.methods.size());
    for (const auto& method : each.match.methods)
      to.text(method);
    write(to, each.match.query);
    write(to, each.match.headers);
    to.number(each.action.index());
    std::visit([&](const auto& action) { write(to, action); }, each.action);
  }
  return to.take();
}

result<std::vector<request_rule>> rules_from_text(std::string_view text) {
  packed_reader from{text};
  std::vector<request_rule> rules;
  for (auto left = from.count(max_request_rules); left > 0 && from.good(); --left) {
    auto& each = rules.emplace_back();
    each.domain = from.text();
    read(from, each.match.path);
    for (auto methods = from.count(max_methods); methods > 0; --methods)
      each.match.methods.push_back(from.text());
    read(from, each.match.query);
    read(from, each.match.headers);
    switch (from.count(2)) {
      case 0: {
        transform_action action;
        read(from, action.headers);
        each.action = std::move(action);
        break;
      }
      case 1: each.action = forward_action{from.text()}; break;
      default: {
        respond_action action;
        action.status = static_cast<unsigned>(from.count(599));
        read(from, action.headers);
        action.body = from.text();
        each.action = std::move(action);
      }
    }
  }
  if (!from.is_over())
    return wrong("these are no rules about requests");
  if (auto ok = check(rules); !ok)
    return ok.reason();
  return rules;
}

} // namespace insula

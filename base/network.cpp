#include "base/network.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

namespace insula {

namespace {

error wrong(std::string_view target, std::string_view why) {
  return {errc::invalid_request, "\"" + std::string{target} + "\" " + std::string{why}};
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || why != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

result<std::string> normalise_subnet(std::string_view target) {
  const auto slash = target.find('/');
  const std::string address{target.substr(0, slash)};
  std::array<unsigned char, 16> bytes{};
  const bool ipv6 = address.find(':') != std::string::npos;
  const int family = ipv6 ? AF_INET6 : AF_INET;
  // inet_pton() stops at a NUL.
  if (address.find('\0') != std::string::npos ||
      ::inet_pton(family, address.c_str(), bytes.data()) != 1)
    return wrong(target, "is no address or subnet");
  const unsigned bits = ipv6 ? 128 : 32;
  unsigned prefix = bits;
  if (slash != std::string_view::npos) {
    const auto given = number<unsigned>(target.substr(slash + 1));
    if (!given || *given > bits)
      return wrong(target, "has a prefix that is not 0 to " + std::to_string(bits));
    prefix = *given;
  }
  for (unsigned bit = prefix; bit < bits; ++bit)
    bytes[bit / 8] &= static_cast<unsigned char>(~(0x80u >> bit % 8));
  char text[INET6_ADDRSTRLEN];
  ::inet_ntop(family, bytes.data(), text, sizeof text);
  return std::string{text} + "/" + std::to_string(prefix);
}

bool is_label(std::string_view label) {
  return !label.empty() && label.size() <= 63 &&
         std::all_of(label.begin(), label.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

/// Calls it with each part between separators, until it answers false.
template <class Take>
bool each_part(std::string_view text, char separator, Take take) {
  for (;;) {
    const auto end = text.find(separator);
    if (!take(text.substr(0, end)))
      return false;
    if (end == std::string_view::npos)
      return true;
    text.remove_prefix(end + 1);
  }
}

/// The text up to the next separator, which goes with it.
std::string_view take_until(std::string_view& text, char separator) {
  const auto end = text.find(separator);
  const auto part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

constexpr std::string_view off = "off";
constexpr std::string_view on = "on";

/// A name that somebody in a sandbox has chosen, as a word of a line.
std::string word(std::string_view text) {
  std::string safe;
  for (const char c : text)
    safe += c > ' ' && c < 0x7f ? c : '?';
  return safe.empty() ? "-" : safe;
}

constexpr std::array<std::string_view, connection_failures> failure_words{
  "refused", "reset", "timed_out", "unreachable", "unresolved"};

std::optional<connection_failure> failure_from_text(std::string_view text) {
  const auto at = std::find(failure_words.begin(), failure_words.end(), text);
  if (at == failure_words.end())
    return std::nullopt;
  return static_cast<connection_failure>(at - failure_words.begin());
}

std::string text_of_word(std::string_view word) {
  return word == "-" ? std::string{} : std::string{word};
}

} // namespace

bool is_subnet(std::string_view target) {
  return target.find('/') != std::string_view::npos;
}

result<std::string> normalise_target(std::string_view target) {
  const bool numeric =
    !target.empty() && target.find_first_not_of("0123456789./") == std::string_view::npos;
  if (target.find_first_of("/:") != std::string_view::npos || numeric)
    return normalise_subnet(target);
  std::string name{target};
  if (name.ends_with('.'))
    name.pop_back();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (name.empty())
    return wrong(target, "is empty");
  if (name.size() > 253)
    return wrong(target.substr(0, 64), "is longer than the 253 bytes of a domain");
  const bool good =
    each_part(name, '.', [](std::string_view label) { return label == "*" || is_label(label); });
  if (!good)
    return wrong(target, name.find('*') != std::string::npos
                           ? "has a wildcard that is not a whole label"
                           : "is no domain: labels of 1 to 63 letters, digits, \"-\" and \"_\"");
  return name;
}

std::string_view to_text(connection_failure how) {
  return failure_words[static_cast<std::size_t>(how)];
}

// ---- A policy as text

std::string to_text(const egress_policy& policy) {
  std::string text;
  ((text += "default ") += policy.allow_rest ? "allow" : "deny") += '\n';
  ((text += "dry-run ") += policy.dry_run ? on : off) += '\n';
  ((text += "match-host ") += policy.match_host ? on : off) += '\n';
  for (const auto& rule : policy.rules)
    ((text += rule.allow ? "allow " : "deny ") += rule.target) += '\n';
  return text;
}

result<egress_policy> policy_from_text(std::string_view text) {
  egress_policy policy;
  policy.rules.reserve(16);
  const error bad{errc::invalid_request, "this is no policy"};
  const auto flag = [](std::string_view value, bool& into) {
    into = value == on;
    return value == on || value == off;
  };
  bool has_default = false;
  while (!text.empty()) {
    auto line = take_until(text, '\n');
    const auto what = take_until(line, ' ');
    if (what == "default" && (line == "allow" || line == "deny")) {
      policy.allow_rest = line == "allow";
      has_default = true;
    } else if (what == "dry-run" || what == "match-host") {
      if (!flag(line, what == "dry-run" ? policy.dry_run : policy.match_host))
        return bad;
    } else if (what == "allow" || what == "deny") {
      auto target = normalise_target(line);
      if (!target || *target != line || policy.rules.size() >= max_egress_rules)
        return bad;
      policy.rules.push_back({what == "allow", std::move(*target)});
    } else {
      return bad;
    }
  }
  if (!has_default)
    return bad;
  return policy;
}

// ---- Figures as text

std::string to_text(const network_figures& figures) {
  std::string text = "figures " + std::to_string(figures.bytes_in) + ' ' +
                     std::to_string(figures.bytes_out) + ' ' + std::to_string(figures.connections) +
                     ' ' + std::to_string(figures.open_connections) + ' ' +
                     std::to_string(figures.refusals) + ' ' + std::to_string(figures.gateway_us) +
                     ' ' + std::to_string(figures.failures) + '\n';
  for (const auto& each : figures.last_refusals)
    // The rule is last: it may have spaces in it.
    text += "refusal " + std::to_string(each.at_ms) + ' ' + word(each.protocol) + ' ' +
            word(each.name) + ' ' + word(each.address) + ' ' + std::to_string(each.port) + ' ' +
            (each.let_through ? "1 " : "0 ") + each.rule + '\n';
  for (const auto& each : figures.last_failures)
    text += "failure " + std::to_string(each.at_ms) + ' ' + word(each.protocol) + ' ' +
            word(each.name) + ' ' + word(each.address) + ' ' + std::to_string(each.port) + ' ' +
            std::string{to_text(each.reason)} + '\n';
  return text;
}

result<network_figures> figures_from_text(std::string_view text) {
  const error bad{errc::invalid_request, "these are no figures"};
  network_figures figures;
  auto first = take_until(text, '\n');
  if (take_until(first, ' ') != "figures")
    return bad;
  for (auto* each : {&figures.bytes_in, &figures.bytes_out, &figures.connections,
                     &figures.open_connections, &figures.refusals}) {
    const auto value = number<std::uint64_t>(take_until(first, ' '));
    if (!value)
      return bad;
    *each = *value;
  }
  // One of an earlier version does not say these.
  figures.gateway_us = number<std::uint64_t>(take_until(first, ' ')).value_or(0);
  figures.failures = number<std::uint64_t>(take_until(first, ' ')).value_or(0);
  while (!text.empty()) {
    auto line = take_until(text, '\n');
    const auto kind = take_until(line, ' ');
    const bool refused = kind == "refusal";
    if ((!refused && kind != "failure") ||
        (refused ? figures.last_refusals.size() : figures.last_failures.size()) >=
          max_kept_refusals)
      return bad;
    const auto at = number<std::int64_t>(take_until(line, ' '));
    auto protocol = text_of_word(take_until(line, ' '));
    auto name = text_of_word(take_until(line, ' '));
    auto address = text_of_word(take_until(line, ' '));
    const auto port = number<std::uint16_t>(take_until(line, ' '));
    if (!at || !port)
      return bad;
    if (refused) {
      const bool let_through = take_until(line, ' ') == "1";
      figures.last_refusals.push_back({*at, std::move(protocol), std::move(name),
                                       std::move(address), *port, std::string{line}, let_through});
    } else {
      const auto reason = failure_from_text(line);
      if (!reason)
        return bad;
      figures.last_failures.push_back(
        {*at, std::move(protocol), std::move(name), std::move(address), *port, *reason});
    }
  }
  return figures;
}

std::string to_text(const network_totals& totals) {
  std::string text = "totals " + std::to_string(totals.refusals);
  for (const auto each : totals.failures)
    (text += ' ') += std::to_string(each);
  return text += '\n';
}

result<network_totals> totals_from_text(std::string_view text) {
  const error bad{errc::invalid_request, "these are no totals"};
  network_totals totals;
  auto line = take_until(text, '\n');
  if (take_until(line, ' ') != "totals")
    return bad;
  std::array<std::uint64_t*, 1 + connection_failures> all{&totals.refusals};
  for (std::size_t i = 0; i < connection_failures; ++i)
    all[1 + i] = &totals.failures[i];
  for (auto* each : all) {
    const auto value = number<std::uint64_t>(take_until(line, ' '));
    if (!value)
      return bad;
    *each = *value;
  }
  return totals;
}

} // namespace insula

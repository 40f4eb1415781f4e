#include "runtime/egress/policy.hpp"

#include <algorithm>

namespace insula::runtime::egress {

namespace {

constexpr std::string_view everything = "*";

std::string rule_text(bool allow, const std::string& target) {
  return (allow ? "allow " : "deny ") + target;
}

/// What denies an address denies every way to write it that leads to the same place.
bool covers(const subnet& net, bool allow, const ip_address& address) {
  if (net.contains(address))
    return true;
  if (allow)
    return false;
  const auto inner = embedded_ipv4(address);
  return std::any_of(inner.begin(), inner.end(),
                     [&](const ip_address& each) { return net.contains(each); });
}

/// The last label, which is taken away with its dot.
std::string_view take_last(std::string_view& labels) {
  const auto dot = labels.rfind('.');
  const auto last = labels.substr(dot == std::string_view::npos ? 0 : dot + 1);
  labels.remove_suffix(dot == std::string_view::npos ? labels.size() : last.size() + 1);
  return last;
}

} // namespace

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern == everything)
    return true;
  if (name.empty())
    return false;
  while (!pattern.empty() && !name.empty()) {
    const auto wanted = take_last(pattern);
    if (wanted == everything && pattern.empty())
      return true; // Whatever is left of the name, one label at least.
    if (const auto label = take_last(name); wanted != everything && wanted != label)
      return false;
  }
  return pattern.empty() && name.empty();
}

std::string plain_name(std::string_view name) {
  if (name.ends_with('.'))
    name.remove_suffix(1);
  constexpr std::size_t longest = 253;
  if (name.empty() || name.size() > longest)
    return {};
  std::string plain;
  for (const char c : name) {
    const char low = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    const bool good = (low >= 'a' && low <= 'z') || (low >= '0' && low <= '9') || low == '-' ||
                      low == '_' || (low == '.' && !plain.empty() && plain.back() != '.');
    if (!good)
      return {};
    plain += low;
  }
  return plain.ends_with('.') ? std::string{} : plain;
}

policy::policy(const egress_policy& from)
    : from_(from) {
  for (const auto& each : from_.rules) {
    const auto net = is_subnet(each.target) ? subnet::parse(each.target) : std::nullopt;
    rules_.push_back({each.allow, net, &each.target});
    allows_subnets_ = allows_subnets_ || (each.allow && net);
    allows_any_ = allows_any_ || each.allow;
  }
}

policy::verdict policy::judge(const ip_address* address,
                              std::optional<std::string_view> name) const {
  for (const auto& each : rules_) {
    const bool about_all = *each.target == everything;
    if (each.net ? address == nullptr || !covers(*each.net, each.allow, *address)
                 : !about_all && name && !matches(*each.target, *name))
      continue;
    if (!each.net && !about_all && !name)
      return {answer::need_name, {}};
    const auto rule = rule_text(each.allow, *each.target);
    if (!each.allow)
      return {answer::refuse, rule};
    return {each.net || about_all ? answer::allow : answer::by_name, rule};
  }
  return {from_.allow_rest ? answer::allow : answer::refuse, "default"};
}

policy::answer policy::best(const ip_address& address) const {
  for (const auto& each : rules_) {
    const bool about_all = *each.target == everything;
    if (each.net ? covers(*each.net, each.allow, address) : about_all)
      return each.allow ? answer::allow : answer::refuse;
    if (!each.net && each.allow)
      return answer::by_name;
  }
  return from_.allow_rest ? answer::allow : answer::refuse;
}

std::string policy::denies(const ip_address& resolved) const {
  for (const auto& each : rules_)
    if (!each.allow && each.net && covers(*each.net, each.allow, resolved))
      return rule_text(false, *each.target);
  return {};
}

policy::dns_verdict policy::judge_question(std::string_view name) const {
  for (const auto& each : rules_) {
    if (each.net || !matches(*each.target, name))
      continue;
    const auto rule = rule_text(each.allow, *each.target);
    if (each.allow)
      return {*each.target == everything ? dns_answer::real : dns_answer::inner, rule};
    return {dns_answer::refuse, rule};
  }
  if (from_.allow_rest || allows_subnets_)
    return {dns_answer::real, "default"};
  return {dns_answer::refuse, "default"};
}

} // namespace insula::runtime::egress

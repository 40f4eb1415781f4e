#include "http/api/page_guard.hpp"

#include "http/api/origin.hpp"
#include "http/text/header_text.hpp"

#include <algorithm>
#include <arpa/inet.h>

namespace insula::http {

namespace {

bool is_address(int family, std::string_view text) {
  in6_addr room{};
  return ::inet_pton(family, std::string{text}.c_str(), &room) == 1;
}

} // namespace

page_guard::page_guard(std::vector<std::string> allowed_hosts)
    : names_(std::move(allowed_hosts)) {
  names_.emplace_back("localhost");
  for (auto& name : names_)
    name = lower_case(name);
}

std::optional<std::string_view>
page_guard::objection(std::string_view host, std::string_view origin, std::string_view site) const {
  if (!host.empty() && !leads_here(host))
    return "Without an API key, Host must be localhost, an IP address or one of "
           "server.allowed_hosts";
  const bool foreign = site == "cross-site" || site == "same-site"; // The latter: another port.
  if (foreign || (!origin.empty() && !is_origin_of(origin, host)))
    return "Without an API key, web pages of another origin are refused";
  return std::nullopt;
}

bool page_guard::leads_here(std::string_view host) const {
  const bool bracketed = host.front() == '[';
  const auto name = host.substr(0, bracketed ? host.find(']') + 1 : host.find(':'));
  const auto port = host.substr(name.size());
  if (!port.empty() &&
      (port.front() != ':' || port.find_first_not_of("0123456789", 1) != port.npos))
    return false;
  if (bracketed) // Without the other bracket, the name is empty.
    return name.size() > 2 && is_address(AF_INET6, name.substr(1, name.size() - 2));
  return is_address(AF_INET, name) ||
         std::find(names_.begin(), names_.end(), lower_case(name)) != names_.end();
}

} // namespace insula::http

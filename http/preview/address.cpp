#include "http/preview/address.hpp"

#include "base/id.hpp"
#include "http/text/header_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace insula::http::preview {

namespace {

struct form {
  std::string_view before_id, before_port;
  bool may_end = false; ///< With the port.
};
constexpr std::array<form, 3> forms{{{"/v1/sandbox/", "/port/"},
                                     {"/v1/sandboxes/", "/proxy/", true},
                                     {"/sandboxes/", "/proxy/", true}}};
constexpr std::size_t longest_label = 63;

/// As it is written and not otherwise: no sign, no leading zero. 0: it is none.
std::uint16_t port_of(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool whole =
    !text.empty() && text.front() != '0' && why == std::errc{} && end == text.data() + text.size();
  return whole ? port : std::uint16_t{0};
}

std::optional<address> made_of(std::string id, std::string_view port, std::string_view path) {
  const auto number = port_of(port);
  if (number == 0 || !sandbox_id::parse(id))
    return std::nullopt;
  return address{std::move(id), number, {}, std::string{path}};
}

} // namespace

std::optional<address> address_of_host(std::string_view host, std::string_view domain,
                                       std::string_view path) {
  const auto name = host.substr(0, host.find(':'));
  const auto dot = name.find('.');
  if (dot == std::string_view::npos || !same_letters(name.substr(dot + 1), domain))
    return std::nullopt;
  const auto label = name.substr(0, dot);
  const auto dash = label.find('-');
  if (dash == std::string_view::npos)
    return std::nullopt;
  return made_of(lower_case(label.substr(dash + 1)), label.substr(0, dash), path);
}

std::optional<address> address_of_path(std::string_view path) {
  for (const auto& each : forms) {
    if (!path.starts_with(each.before_id))
      continue;
    const auto from = each.before_id.size();
    const auto id = path.substr(from, path.find('/', from) - from);
    auto rest = path.substr(std::min(path.size(), from + id.size()));
    if (!rest.starts_with(each.before_port))
      continue;
    rest.remove_prefix(each.before_port.size());
    const auto port = rest.substr(0, rest.find('/'));
    rest.remove_prefix(port.size());
    if (rest.empty() && !each.may_end)
      continue;
    auto found = made_of(std::string{id}, port, rest.empty() ? "/" : rest);
    if (found)
      found->prefix = path.substr(0, path.size() - rest.size());
    return found;
  }
  return std::nullopt;
}

std::optional<address> address_beyond(const address& served) {
  constexpr std::string_view before_port = "/proxy/";
  if (!served.path.starts_with(before_port))
    return std::nullopt;
  auto rest = std::string_view{served.path}.substr(before_port.size());
  const auto port = rest.substr(0, rest.find('/'));
  rest.remove_prefix(port.size());
  auto found = made_of(served.id, port, rest.empty() ? "/" : rest);
  if (found) {
    ((found->prefix = served.prefix) += before_port) += port;
    found->served_by = served.port;
  }
  return found;
}

std::string label_of(std::string_view id, std::uint16_t port) {
  auto label = std::to_string(port) + "-" + std::string{id};
  return label.size() > longest_label ? std::string{} : std::move(label);
}

std::string prefix_of(std::string_view id, std::uint16_t port) {
  return std::string{forms[0].before_id} + std::string{id} + std::string{forms[0].before_port} +
         std::to_string(port);
}

} // namespace insula::http::preview

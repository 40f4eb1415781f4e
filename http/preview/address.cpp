#include "http/preview/address.hpp"

#include "base/id.hpp"
#include "http/header_text.hpp"

#include <algorithm>
#include <charconv>

namespace insula::http::preview {

namespace {

constexpr std::string_view before_id = "/v1/sandbox/";
constexpr std::string_view before_port = "/port/";
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
  std::string id{label.substr(dash + 1)};
  std::transform(id.begin(), id.end(), id.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return made_of(std::move(id), label.substr(0, dash), path);
}

std::optional<address> address_of_path(std::string_view path) {
  if (!path.starts_with(before_id))
    return std::nullopt;
  const auto id =
    path.substr(before_id.size(), path.find('/', before_id.size()) - before_id.size());
  auto rest = path.substr(std::min(path.size(), before_id.size() + id.size()));
  if (!rest.starts_with(before_port))
    return std::nullopt;
  rest.remove_prefix(before_port.size());
  const auto port = rest.substr(0, rest.find('/'));
  rest.remove_prefix(port.size());
  if (rest.empty())
    return std::nullopt;
  auto found = made_of(std::string{id}, port, rest);
  if (found)
    found->prefix = prefix_of(found->id, found->port);
  return found;
}

std::string host_of(std::string_view id, std::uint16_t port, std::string_view domain) {
  const auto label = std::to_string(port) + "-" + std::string{id};
  return label.size() > longest_label ? std::string{} : label + "." + std::string{domain};
}

std::string prefix_of(std::string_view id, std::uint16_t port) {
  return std::string{before_id} + std::string{id} + std::string{before_port} + std::to_string(port);
}

} // namespace insula::http::preview

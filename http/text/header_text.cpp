#include "http/text/header_text.hpp"

#include <algorithm>
#include <array>

namespace insula::http {

namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

} // namespace

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string lower_case(std::string_view text) {
  std::string made{text};
  std::transform(made.begin(), made.end(), made.begin(), lower);
  return made;
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string_view take_until(std::string_view& list, char mark) {
  const auto item = list.substr(0, list.find(mark));
  list.remove_prefix(std::min(list.size(), item.size() + 1));
  return trimmed(item);
}

bool names(std::string_view list, std::string_view word) {
  while (!list.empty())
    if (same_letters(take_until(list, ','), word))
      return true;
  return false;
}

bool is_of_one_connection(std::string_view name) {
  constexpr std::array<std::string_view, 9> known{
    "Connection",          "Keep-Alive", "Proxy-Connection",  "Proxy-Authenticate",
    "Proxy-Authorization", "TE",         "Transfer-Encoding", "Upgrade",
    "Content-Length"};
  return std::any_of(known.begin(), known.end(),
                     [&](auto each) { return same_letters(name, each); });
}

bool is_of_nodes(std::string_view name) {
  constexpr std::string_view prefix = "Insula-Node-";
  return same_letters(name.substr(0, prefix.size()), prefix);
}

} // namespace insula::http

#include "http/bridge/command_line.hpp"

#include <algorithm>

namespace insula::http::bridge {

namespace {

bool is_harmless(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view{"@%+=:,./-"}.find(c) != std::string_view::npos;
}

bool is_plain(std::string_view element) {
  return !element.empty() && std::all_of(element.begin(), element.end(), is_harmless);
}

std::string posix_quote(std::string_view element) {
  std::string quoted = "'";
  quoted.reserve(element.size() + 2);
  for (const char c : element)
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  return quoted + "'";
}

template <class Quote>
std::string joined(const std::vector<std::string>& argv, Quote quoted) {
  std::string line;
  for (const auto& element : argv) {
    if (!line.empty())
      line += ' ';
    if (is_plain(element))
      line += element;
    else
      line += quoted(element);
  }
  return line;
}

} // namespace

std::string quote(std::string_view element) {
  if (is_plain(element))
    return std::string{element};
  std::string quoted = "$'";
  quoted.reserve(element.size() + 3);
  for (const char c : element) {
    switch (c) {
      case '\\': quoted += "\\\\"; break;
      case '\'': quoted += "\\'"; break;
      case '\n': quoted += "\\n"; break;
      case '\r': quoted += "\\r"; break;
      case '\t': quoted += "\\t"; break;
      default: quoted += c;
    }
  }
  quoted += '\'';
  return quoted;
}

std::string command_line(const std::vector<std::string>& argv) {
  return joined(argv, &quote);
}

std::string posix_command_line(const std::vector<std::string>& argv) {
  if (std::all_of(argv.begin(), argv.end(), &is_plain))
    return {};
  return joined(argv, &posix_quote);
}

} // namespace insula::http::bridge

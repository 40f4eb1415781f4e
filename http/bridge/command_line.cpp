#include "http/bridge/command_line.hpp"

#include <algorithm>

namespace insula::http::bridge {

namespace {

bool is_harmless(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view{"@%+=:,./-"}.find(c) != std::string_view::npos;
}

} // namespace

std::string quote(std::string_view element) {
  if (!element.empty() && std::all_of(element.begin(), element.end(), is_harmless))
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
  std::string line;
  for (const auto& element : argv) {
    if (!line.empty())
      line += ' ';
    line += quote(element);
  }
  return line;
}

} // namespace insula::http::bridge

#include "benchmarks/load/markdown.hpp"

#include <string_view>

namespace insula::load {

namespace {

std::string line_of(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const auto& each : cells)
    line += ' ' + markdown_escaped(each) + " |";
  return line + '\n';
}

} // namespace

std::string markdown_escaped(const std::string& text) {
  std::string made;
  for (const char c : text)
    if (c == '<')
      made += "&lt;";
    else if (c == '&')
      made += "&amp;";
    else if (static_cast<unsigned char>(c) < ' ')
      made += ' ';
    else if (std::string_view{"\\`*_[]|~"}.find(c) != std::string_view::npos)
      made += std::string{'\\'} + c;
    else
      made += c;
  return made;
}

std::string markdown_table(const std::vector<std::vector<std::string>>& lines, bool all_left) {
  if (lines.empty())
    return {};
  auto table = line_of(lines.front()) + '|';
  for (std::size_t i = 0; i < lines.front().size(); ++i)
    table += i == 0 || all_left ? " --- |" : " ---: |";
  table += '\n';
  for (std::size_t i = 1; i < lines.size(); ++i)
    table += line_of(lines[i]);
  return table;
}

} // namespace insula::load

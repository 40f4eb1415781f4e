#include "actors/record_text.hpp"

#include <charconv>
#include <cstddef>

namespace insula::actors {

std::string to_text(const record_entries& told) {
  std::string text;
  for (const auto& [key, value] : told)
    text += key + ' ' + std::to_string(value.size()) + '\n' + value + '\n';
  return text;
}

std::string text_in(const record_entries& record, std::string_view key) {
  const auto at = record.find(key);
  return at == record.end() ? std::string{} : at->second;
}

record_entries from_text(std::string_view text) {
  record_entries told;
  while (!text.empty()) {
    const auto blank = text.find(' ');
    const auto line = text.find('\n');
    std::size_t size = 0;
    if (line == std::string_view::npos || blank > line ||
        std::from_chars(text.data() + blank + 1, text.data() + line, size).ptr !=
          text.data() + line ||
        size >= text.size() - line - 1)
      return told;
    told.emplace(text.substr(0, blank), text.substr(line + 1, size));
    text.remove_prefix(line + size + 2);
  }
  return told;
}

} // namespace insula::actors

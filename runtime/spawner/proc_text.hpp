#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <dirent.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

/// Reading what /proc says, which is lines of words.
namespace insula::runtime::spawner {

/// "/proc/<process>" and `file`, which begins with a slash.
std::string proc_file(pid_t process, const char* file);

using open_listing = std::unique_ptr<DIR, int (*)(DIR*)>;
/// Null: it cannot be read.
open_listing open_directory(const std::string& path);

/// The beginning of a file, `most` bytes of it and perhaps some more. Empty: it cannot be read.
std::string beginning_of(const std::string& path, std::size_t most);

/// The number at the beginning of a text; 0: there is none.
std::uint64_t number(std::string_view text, int base = 10);

/// The first words of a line; empty ones where it ends before.
template <std::size_t N>
std::array<std::string_view, N> words_of(std::string_view line) {
  std::array<std::string_view, N> words;
  for (auto& each : words) {
    const auto begin = line.find_first_not_of(" \t");
    line.remove_prefix(begin < line.size() ? begin : line.size());
    each = line.substr(0, line.find_first_of(" \t"));
    line.remove_prefix(each.size());
  }
  return words;
}

template <class Do>
void for_each_line(std::string_view text, Do what) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    what(text.substr(0, end));
    text.remove_prefix(end < text.size() ? end + 1 : text.size());
  }
}

/// The number behind `name` in a text of lines.
std::optional<std::uint64_t> value_of(std::string_view text, std::string_view name);

} // namespace insula::runtime::spawner

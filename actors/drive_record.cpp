#include "actors/drive_record.hpp"

#include "actors/record_keys.hpp"

#include <algorithm>

namespace insula::actors {

namespace {

/// Up to the character, which goes with it.
std::string_view take(std::string_view& from, char end) {
  const auto word = from.substr(0, from.find(end));
  from.remove_prefix(std::min(from.size(), word.size() + 1));
  return word;
}

} // namespace

std::string text_of(const std::vector<drive_mount>& all) {
  std::string text;
  for (const auto& each : all)
    text +=
      std::string{name_of(each.mode)} + ' ' + each.drive + ' ' + each.name + ' ' + each.path + '\n';
  return text;
}

std::vector<drive_mount> read_drives(std::string_view text) {
  std::vector<drive_mount> all;
  while (!text.empty()) {
    auto line = take(text, '\n');
    const auto mode = drive_mode_of(take(line, ' '));
    const auto drive = take(line, ' '), name = take(line, ' ');
    if (mode && !drive.empty() && !line.empty())
      all.push_back({std::string{line}, std::string{drive}, *mode, std::string{name}});
  }
  return all;
}

std::string text_of(const drive_use& by) {
  return by.sandbox + '\n' + std::to_string(by.run) + '\n' + by.name;
}

std::optional<drive_use> read_drive_use(std::string_view text) {
  if (text.empty())
    return std::nullopt;
  drive_use by;
  by.sandbox = take(text, '\n');
  by.run = static_cast<std::uint64_t>(number_in(take(text, '\n')).value_or(0));
  by.name = text;
  return by;
}

} // namespace insula::actors
